#!/usr/bin/env python3
"""Prints unicode_normalization_table.cc: what the four forms need of the Unicode database that Python carries.
usage: python3 unicode_normalization_table.py > unicode_normalization_table.cc"""
import sys
import unicodedata

classes, decompositions, compositions, compatibility, texts = [], [], [], [], []
for point in range(0x110000):
    if 0xD800 <= point < 0xE000 or 0xAC00 <= point <= 0xD7A3:  # surrogates; Hangul syllables are computed
        continue
    c = chr(point)
    ccc = unicodedata.combining(c)
    if ccc:
        if classes and classes[-1][1] == point - 1 and classes[-1][2] == ccc:
            classes[-1][1] = point
        else:
            classes.append([point, point, ccc])
    d = unicodedata.decomposition(c)
    if d and not d.startswith("<"):
        parts = [int(p, 16) for p in d.split()]
        decompositions.append((point, parts[0], parts[1] if len(parts) > 1 else 0))
        if len(parts) == 2 and unicodedata.normalize("NFC", c) == c:
            compositions.append((parts[0], parts[1], point))
    elif d:
        whole = [ord(part) for part in unicodedata.normalize("NFKD", c)]
        found = next((i for i in range(len(texts)) if texts[i:i + len(whole)] == whole), len(texts))
        if found == len(texts):
            texts += whole
        compatibility.append((point, found, len(whole)))


def rows(items, show):
    line = "   "
    for item in items:
        text = " " + show(item) + ","
        if len(line) + len(text) > 108:
            yield line
            line = "   "
        line += text
    yield line


out = sys.stdout.write
out(f"// Made by unicode_normalization_table.py from Unicode {unicodedata.unidata_version}; do not edit.\n\n")
out('#include "tokenizer/unicode_normalization_table.h"\n\nnamespace shoal::tokenizer {\n\n// clang-format off\n')
for kind, name, items in [("CombiningRange", "kCombiningRanges", classes), ("Decomposition", "kDecompositions", decompositions), ("Composition", "kCompositions", sorted(compositions)), ("CompatibilityDecomposition", "kCompatibility", compatibility)]:
    out(f"static constexpr {kind} {name}Data[] = {{\n")
    show = (lambda r: f"{{0x{r[0]:X}, {r[1]}, {r[2]}}}") if kind.startswith("Compat") else (lambda r: f"{{0x{r[0]:X}, 0x{r[1]:X}, {r[2]}}}") if kind == "CombiningRange" else (lambda r: f"{{0x{r[0]:X}, 0x{r[1]:X}, 0x{r[2]:X}}}")
    out("\n".join(rows(items, show)) + "\n};\n")
    out(f"const std::span<const {kind}> {name}{{{name}Data}};\n\n")
out("static constexpr char32_t kCompatibilityTextData[] = {\n" + "\n".join(rows(texts, lambda c: f"0x{c:X}")) + "\n};\n")
out("const std::span<const char32_t> kCompatibilityText{kCompatibilityTextData};\n\n")
out("// clang-format on\n\n}  // namespace shoal::tokenizer\n")
