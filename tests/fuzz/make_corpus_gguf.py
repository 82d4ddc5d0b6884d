#!/usr/bin/env python3
"""Writes the seeds of fuzz_gguf into tests/fuzz/corpus/gguf: small files that pass, and some that just fail.

Usage: make_corpus_gguf.py [FOLDER]. The same files every time.
"""
import os
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
TYPE_F32, TYPE_Q8_0, TYPE_Q4_K = 0, 8, 12
BLOCK = {TYPE_F32: (1, 4), TYPE_Q8_0: (32, 34), TYPE_Q4_K: (256, 144)}


def text(s):
    b = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(b)) + b


def payload(kind, value):
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        element, items = value
        return struct.pack("<IQ", element, len(items)) + b"".join(payload(element, v) for v in items)
    return struct.pack("<" + PACK[kind], value)


def gguf(entries, tensors=(), version=3, alignment=32):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    for key, kind, value in entries:
        out += text(key) + struct.pack("<I", kind) + payload(kind, value)
    offset, data = 0, b""
    for name, dims, kind in tensors:
        elements, size = BLOCK[kind]
        count = 1
        for d in dims:
            count *= d
        length = count // elements * size
        out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, offset)
        padded = (length + alignment - 1) // alignment * alignment
        data += bytes(padded)
        offset += padded
    out += bytes(-len(out) % alignment)
    return out + data


def model(arch, extra=(), tensors=None, drop=()):
    entries = [
        ("general.architecture", STRING, arch),
        (f"{arch}.block_count", U32, 1),
        (f"{arch}.context_length", U32, 64),
        (f"{arch}.embedding_length", U32, 8),
        (f"{arch}.feed_forward_length", U32, 8),
        (f"{arch}.attention.head_count", U32, 2),
        (f"{arch}.attention.head_count_kv", U32, 1),
        (f"{arch}.attention.layer_norm_rms_epsilon", F32, 1e-5),
    ]
    entries = [e for e in entries if e[0].split(".", 1)[1] not in drop] + list(extra)
    if tensors is None:
        tensors = [("token_embd.weight", (8, 3), TYPE_F32), ("output_norm.weight", (8,), TYPE_F32)]
        for name, dims in [("attn_norm.weight", (8,)), ("attn_q.weight", (8, 8)), ("attn_k.weight", (8, 4)),
                           ("attn_v.weight", (8, 4)), ("attn_output.weight", (8, 8)), ("ffn_norm.weight", (8,)),
                           ("ffn_gate.weight", (8, 8)), ("ffn_up.weight", (8, 8)), ("ffn_down.weight", (8, 8))]:
            tensors.append(("blk.0." + name, dims, TYPE_F32))
        if arch == "qwen3":
            tensors += [("blk.0.attn_q_norm.weight", (4,), TYPE_F32), ("blk.0.attn_k_norm.weight", (4,), TYPE_F32)]
    return gguf(entries, tensors)


def seeds():
    every = [("k%d" % k, k, 1) for k in PACK] + [("s", STRING, "text"), ("e", STRING, "")]
    arrays = [("a%d" % k, ARRAY, (k, [0, 1])) for k in PACK]
    arrays += [("words", ARRAY, (STRING, ["", "one", "zwei"])), ("none", ARRAY, (F32, []))]
    yield "empty", gguf([])
    yield "every_type", gguf(every)
    yield "arrays", gguf(arrays)
    yield "version2", gguf(every[:3], version=2)
    yield "alignment64", gguf([("general.alignment", U32, 64)], [("t", (4,), TYPE_F32), ("u", (3, 3), TYPE_F32)], alignment=64)
    yield "quantised", gguf([], [("q8", (64, 2), TYPE_Q8_0), ("k", (256,), TYPE_Q4_K)])
    yield "four_dims", gguf([], [("t", (2, 3, 2, 1), TYPE_F32)])
    yield "nested_array", gguf([("n", ARRAY, (ARRAY, [(U8, [1])]))])
    whole = model("llama")
    yield "llama", whole
    yield "llama_cut", whole[: len(whole) - 16]
    yield "llama_no_heads", model("llama", drop=("attention.head_count",))
    yield "llama_vocabulary_only", model("llama", [("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "b"]))], tensors=[])
    yield "llama_linear", model("llama", [("llama.rope.scaling.type", STRING, "linear"), ("llama.rope.scaling.factor", F32, 2.0)])
    yield "llama_window", model("llama", [("llama.attention.sliding_window", U32, 32), ("llama.attention.sliding_window_pattern", ARRAY, (BOOL, [1]))])
    yield "qwen2", model("qwen2")
    yield "qwen3_yarn", model("qwen3", [("qwen3.rope.scaling.type", STRING, "yarn"), ("qwen3.attention.key_length", U32, 4)])
    yield "big_endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0)


def main():
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "gguf")
    folder = sys.argv[1] if len(sys.argv) > 1 else default
    os.makedirs(folder, exist_ok=True)
    for name, data in seeds():
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)


if __name__ == "__main__":
    main()
