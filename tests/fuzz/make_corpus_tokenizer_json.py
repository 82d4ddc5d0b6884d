#!/usr/bin/env python3
"""Writes the seeds of fuzz_tokenizer_json into tests/fuzz/corpus/tokenizer_json: small tokenizers with each kind of part.

Usage: make_corpus_tokenizer_json.py [FOLDER]. The same files every time.
"""
import base64
import json
import os
import struct
import sys

# Printable bytes stand for themselves in byte-level vocabularies, a space is the 33rd of the others.
BYTE_WORDS = ["!", "H", "e", "l", "o", "w", "r", "d", ",", "i", "t", "s", "'", "1", "2", "\u0120", "\u010a", "\u00c3", "\u00a9"]
PAIRS = [("l", "l"), ("e", "ll"), ("H", "ell"), ("Hell", "o"), ("\u0120", "w"), ("o", "r")]


def bpe(words, pairs, listed=False, **fields):
    vocabulary = {}
    for word in [*words, *("".join(pair) for pair in pairs)]:
        vocabulary.setdefault(word, len(vocabulary))
    merges = [list(pair) for pair in pairs] if listed else [" ".join(pair) for pair in pairs]
    return {"type": "BPE", "vocab": vocabulary, "merges": merges, **fields}


def added(*tokens):
    return [{"id": 100 + i, "content": content, "special": special, "normalized": normalized, "single_word": single,
             "lstrip": strip, "rstrip": strip} for i, (content, special, normalized, single, strip) in enumerate(tokens)]


def charsmap():
    """One entry: "a" stands for "bc"."""
    units = [0] * 512
    units[0] = 256 << 10                            # children of the root lie at 256 ^ label
    units[256 ^ ord("a")] = ord("a") | 1 << 8 | (1 << 10)
    units[(256 ^ ord("a")) ^ 1] = 1 << 31           # the value: texts[0]
    trie = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + b"bc\0").decode()


SPLITS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def seeds():
    byte_model = bpe(BYTE_WORDS, PAIRS)
    plain = bpe([chr(c) for c in range(32, 127)] + ["\u2581", "<unk>", "<0x0A>", "<0xC3>", "<0xA9>"], PAIRS[:4], byte_fallback=True,
                unk_token="<unk>", fuse_unk=True)
    yield "byte_level", {"model": byte_model, "pre_tokenizer": BYTE_LEVEL, "decoder": {"type": "ByteLevel"}}
    yield "llama3", {
        "added_tokens": added(("<s>", True, False, False, False), ("</s>", True, False, False, False)),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]},
        "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [100], "tokens": ["<s>"]}}}]},
        "decoder": {"type": "ByteLevel"}, "model": bpe(BYTE_WORDS, PAIRS, listed=True, ignore_merges=True)}
    yield "llama2", {
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": plain}
    yield "metaspace", {"pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
                        "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"}, "model": plain}
    yield "added", {"added_tokens": added(("ab", False, True, True, False), ("<s>", True, False, False, True), ("a b", False, False, False, True)),
                    "normalizer": {"type": "Lowercase"}, "model": plain}
    for kind in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "BertNormalizer", "ByteLevel"]:
        yield "normalizer_" + kind.lower(), {"normalizer": {"type": kind}, "model": plain}
    yield "normalizer_strip", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}, "model": plain}
    yield "normalizer_regex", {"normalizer": {"type": "Replace", "pattern": {"Regex": "l+|\\s"}, "content": "_"}, "model": plain}
    yield "normalizer_precompiled", {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap()}, "model": plain}
    for kind in ["Whitespace", "WhitespaceSplit", "Punctuation", "BertPreTokenizer", "Digits", "FixedLength"]:
        yield "words_" + kind.lower(), {"pre_tokenizer": {"type": kind}, "model": plain}
    yield "words_delimiter", {"pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": "l"}, "model": plain}
    for behavior in SPLITS:
        yield "split_" + behavior.lower(), {"model": plain, "pre_tokenizer": {
            "type": "Split", "pattern": {"String": "l"}, "behavior": behavior, "invert": behavior == "Removed"}}
    yield "roberta", {"post_processor": {"type": "RobertaProcessing", "cls": ["!", 1], "sep": ["H", 2]}, "model": plain}
    yield "holes", {"added_tokens": added(("<s>", True, False, False, False)), "model": bpe(["a", "b"], [("a", "b")])}
    yield "unigram", {"model": {"type": "Unigram", "vocab": [["a", -1.5]]}}
    yield "no_merges", {"model": {"type": "BPE", "vocab": {"a": 0}}}
    yield "bad_merge", {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}


def main():
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "tokenizer_json")
    folder = sys.argv[1] if len(sys.argv) > 1 else default
    os.makedirs(folder, exist_ok=True)
    for name, tokenizer in seeds():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            json.dump(tokenizer, out, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main()
