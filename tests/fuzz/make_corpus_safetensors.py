#!/usr/bin/env python3
"""Writes the seeds of fuzz_safetensors and fuzz_hf_config into tests/fuzz/corpus: small files that pass, and some
that just fail.

Usage: make_corpus_safetensors.py [FOLDER]. The same files every time.
"""
import json
import os
import struct
import sys


def file(header, data=0):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    yield "empty", file({})
    yield "one", file({"model.norm.weight": tensor("F32", [2], 0, 8)}, 8)
    yield "three", file({"__metadata__": {"format": "pt"}, "model.layers.0.mlp.up_proj.weight": tensor("BF16", [2, 2], 0, 8),
                         "lm_head.weight": tensor("F16", [1, 2], 8, 12), "scalar": tensor("I64", [], 12, 20)}, 20)
    yield "padded", file(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}   ')
    yield "overlap", file({"a": tensor("F32", [1], 0, 4), "b": tensor("F32", [1], 2, 6)}, 6)
    yield "hole", file({"a": tensor("F32", [1], 0, 4), "b": tensor("F32", [1], 8, 12)}, 12)
    yield "twice", file(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1)
    yield "huge_shape", file({"a": tensor("F32", [1 << 40, 1 << 40], 0, 4)}, 4)
    yield "half_bytes", file({"a": tensor("F4", [3], 0, 2)}, 2)
    yield "long_length", struct.pack("<Q", 1 << 63) + b"{}"
    yield "alias", file({"__metadata__": {"model.embed_tokens.weight": "lm_head.weight"}, "lm_head.weight": tensor("F32", [1, 1], 0, 4)}, 4)


def config(model_type, **more):
    fields = {"model_type": model_type, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 256}
    fields.update(more)
    return json.dumps(fields).encode()


def config_seeds():
    yield "llama", config("llama", rms_norm_eps=1e-5, rope_theta=5e5, tie_word_embeddings=True)
    yield "llama3", config("llama", rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                  "high_freq_factor": 4.0, "original_max_position_embeddings": 64})
    yield "yarn", config("qwen3", rope_scaling={"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.5})
    yield "linear", config("llama", rope_scaling={"type": "linear", "factor": 2.0}, partial_rotary_factor=0.5)
    yield "dynamic", config("llama", rope_scaling={"type": "dynamic", "factor": 2.0})
    yield "mistral", config("mistral", sliding_window=32, head_dim=32)
    yield "qwen2", config("qwen2", use_sliding_window=True, sliding_window=32, max_window_layers=1)
    yield "gemma2", config("gemma2", attn_logit_softcapping=50.0, final_logit_softcapping=None)
    yield "gemma3", json.dumps({"model_type": "gemma3", "text_config": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6,
                                                                      "sliding_window": 32}}).encode()
    yield "gemma3_parameters", config("gemma3_text", layer_types=["sliding_attention", "full_attention"], rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}})
    yield "awq", config("llama", quantization_config={"quant_method": "awq"})
    yield "unknown", config("mixtral")
    yield "list", b"[]"


def main():
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
    folder = sys.argv[1] if len(sys.argv) > 1 else default
    for target, seeds in (("safetensors", safetensors_seeds()), ("hf_config", config_seeds())):
        os.makedirs(os.path.join(folder, target), exist_ok=True)
        for name, data in seeds:
            with open(os.path.join(folder, target, name), "wb") as out:
                out.write(data)


if __name__ == "__main__":
    main()
