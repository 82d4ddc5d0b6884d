#!/usr/bin/env python3
"""Writes tests/unit/tokenizer/hf_parts.jsonl: what the reference library makes of texts with each normalizer and pre-tokenizer.

Needs tokenizers==0.22.1 from PyPI. One record a line: "normalizer" or "pre_tokenizer" as a tokenizer.json has it, and cases of
[text, result], the result a text or a list of words. Characters newer than Unicode 13 are left out: libraries differ in their tables.
"""
import json
import pathlib
import struct

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parent.parent / "unit" / "tokenizer" / "hf_parts.jsonl"

TEXTS = [
    "", " ", "Hello, World!", "  two  spaces\tand\ta tab \n\n", "caf\u00e9 cafe\u0301 \u00c9T\u00c9", "\u00c5ngstr\u00f6m \u212b A\u030a",
    "\ufb01ne \u00bd \u2460 \uff21\uff22\uff23 \u3392 \u2122", "\u1e9b\u0323 s\u0323\u0307", "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab", "\u4f60\u597d\uff0c\u4e16\u754c! 2024\u5e74", "\u0130stanbul \u039f\u0394\u039f\u03a3 \u00df \u01c5",
    "a\u0000b\u0001c\u0007d\u000be\u000cf\rg\u007fh\u0085i\u008fj\u009fk", "\u200bzero\u200dwidth\ufeff\u2028\u2029\u1680\u2581x\ufffd", "price: $5.00 (20% off) #1 @home a_b-c+d=e <f>|g~h^i`j",
    "don't 'quote' \u201ccurly\u201d \u2014 dash\u2026", "12345 6\u0967\u0968 \u00b2\u2167 3.14", "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 flags \U0001f1e9\U0001f1ea", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05c1\u05dc\u05d5\u05dd",
    "CamelCaseWord snake_case kebab-case", "line one\r\nline two\n", "\u00a0nbsp\u3000wide", "e\u0301\u0302\u0323 q\u0307\u0323", "lllleft hell", "\u2581mark\u2581 already", "abc a bc"]


def charsmap():
    """Entries: "a" stands for "bc", "\u00e9" for "e"."""
    units = [0] * 2048
    entries = {b"a": b"bc", b"\xc3\xa9": b"e"}
    texts = b""
    free = 256
    units[0] = free << 10
    base, free = free, free + 256
    for key, text in entries.items():
        node = base
        for i, byte in enumerate(key):
            at = node ^ byte
            node, free = free, free + 256
            last = i == len(key) - 1
            units[at] = byte | (1 << 8 if last else 0) | ((at ^ node) << 10)
            if last:
                units[node] = 1 << 31 | len(texts)
        texts += text + b"\0"
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + texts


NORMALIZERS = [
    normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents(),
    normalizers.Nmt(), normalizers.Strip(), normalizers.Strip(left=True, right=False), normalizers.Prepend("\u2581"),
    normalizers.Replace(" ", "\u2581"), normalizers.Replace(Regex("l+|\\s{2,}"), "_"), normalizers.ByteLevel(), normalizers.BertNormalizer(),
    normalizers.BertNormalizer(lowercase=False), normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False),
    normalizers.BertNormalizer(lowercase=False, strip_accents=True), normalizers.Precompiled(charsmap()),
    normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])]

SPLITS = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]
PRE_TOKENIZERS = [
    pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.BertPreTokenizer(),
    pre_tokenizers.Digits(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.CharDelimiterSplit("l"), pre_tokenizers.FixedLength(3),
    *(pre_tokenizers.Punctuation(behavior) for behavior in SPLITS[1:]),
    *(pre_tokenizers.Split("l", behavior, invert) for behavior in SPLITS for invert in (False, True)),
    *(pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split) for scheme in ("always", "first", "never") for split in (True, False)),
    pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
    pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.Punctuation("contiguous")])]


def part_of(kind, part):
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    setattr(model, kind, part)
    return json.loads(model.to_str())[kind]


def main():
    records = []
    for part in NORMALIZERS:
        records.append({"normalizer": part_of("normalizer", part), "cases": [[t, part.normalize_str(t)] for t in TEXTS]})
    for part in PRE_TOKENIZERS:
        cases = [[t, [word for word, _ in part.pre_tokenize_str(t)]] for t in TEXTS]
        records.append({"pre_tokenizer": part_of("pre_tokenizer", part), "cases": cases})
    with open(OUT, "w", encoding="utf-8") as out:
        for record in records:
            out.write(json.dumps(record, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
