#!/usr/bin/env python3
"""Writes jinja_case_table.cc: the one-to-one case mappings of Unicode above ASCII, as runs.
usage: jinja_case_table.py > jinja_case_table.cc   (then clang-format -i jinja_case_table.cc)
A run is (first, last, stride, delta): every stride-th code point from first to last maps to itself plus delta.
Mappings to several characters are not in the table; jinja_unicode.cc names those it knows.
"""
import unicodedata


def runs(mapping):
    pairs = []
    for c in range(0x80, 0x1E944):
        if 0xD800 <= c < 0xE000:
            continue
        mapped = mapping(chr(c))
        if len(mapped) == 1 and mapped != chr(c):
            pairs.append((c, ord(mapped) - c))
    out, i = [], 0
    while i < len(pairs):
        first, delta = pairs[i]
        stride, j = None, i + 1
        while j < len(pairs) and pairs[j][1] == delta:
            gap = pairs[j][0] - pairs[j - 1][0]
            if stride is None and gap <= 2:
                stride = gap
            elif gap != stride:
                break
            j += 1
        out.append((first, pairs[j - 1][0], stride or 1, delta))
        i = j
    return out


def table(name, mapping):
    print(f"constexpr CaseRun {name}[] = {{")
    print(",".join(f"{{0x{a:X},0x{b:X},{s},{d}}}" for a, b, s, d in runs(mapping)))
    print("};")


print(f"// Made by jinja_case_table.py from Unicode {unicodedata.unidata_version}; do not edit.")
print('#include "tokenizer/jinja_case_table.h"')
print("namespace shoal::tokenizer::jinja {")
print("namespace {")
table("kUpper", str.upper)
table("kLower", str.lower)
print("}  // namespace")
print("std::span<const CaseRun> upper_runs() { return kUpper; }")
print("std::span<const CaseRun> lower_runs() { return kLower; }")
print("}  // namespace shoal::tokenizer::jinja")
