#!/usr/bin/env python3
"""Writes the tiny random checkpoints of tests/oracle/data/hf and the logits that Hugging Face transformers gives
for each: Gemma 2 and 3, Mistral and Qwen2 with sliding windows, Llama with each kind of rope scaling.

usage: make_hf_fixtures.py [NAME ...]      in an environment with
       pip install torch==2.6.0 transformers==4.57.1 numpy safetensors

Weights are stored as BF16 and computed with in F32, so that rounding tells nothing apart but the programs.
"""
import json
import pathlib
import shutil
import sys

import numpy
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent / "data" / "hf"
VOCABULARY = 192
# Longer than every window and every original context below.
TOKENS = 96

SHAPE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=256,
             rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def llama(**more):
    return transformers.LlamaConfig(**{**SHAPE, "tie_word_embeddings": False, "rope_theta": 10000.0, **more})


def gemma(config, **more):
    return config(**{**SHAPE, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24, **more})


# name -> (configuration, class, nested under "text_config", files)
def fixtures():
    t = transformers
    yield "llama-llama3", llama(rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                              "high_freq_factor": 4.0, "original_max_position_embeddings": 32}), \
        t.LlamaForCausalLM, False, 1
    yield "llama-yarn", llama(rope_scaling={"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                            "original_max_position_embeddings": 32}), t.LlamaForCausalLM, False, 1
    yield "llama-linear", llama(rope_scaling={"rope_type": "linear", "factor": 4.0}, attention_bias=True), \
        t.LlamaForCausalLM, False, 1
    yield "mistral-window", t.MistralConfig(**{**SHAPE, "sliding_window": 24, "tie_word_embeddings": False}), \
        t.MistralForCausalLM, False, 1
    yield "qwen2-window", t.Qwen2Config(**{**{k: v for k, v in SHAPE.items() if k != "head_dim"},
                                           "hidden_size": 64, "use_sliding_window": True, "sliding_window": 20,
                                           "max_window_layers": 1, "tie_word_embeddings": False}), \
        t.Qwen2ForCausalLM, False, 1
    yield "gemma2", gemma(t.Gemma2Config, num_hidden_layers=3, sliding_window=20, attn_logit_softcapping=5.0,
                          final_logit_softcapping=3.0), t.Gemma2ForCausalLM, False, 1
    yield "gemma3-text", gemma(t.Gemma3TextConfig, num_hidden_layers=7, sliding_window=20, rope_theta=1e6,
                               rope_local_base_freq=10000.0), t.Gemma3ForCausalLM, False, 1
    yield "gemma3-nested", gemma(t.Gemma3TextConfig, num_hidden_layers=6, sliding_window=40, rope_theta=1e6,
                                 rope_local_base_freq=10000.0, rope_scaling={"rope_type": "linear", "factor": 8.0}), \
        t.Gemma3ForCausalLM, True, 2


def randomise(model, name):
    """Weights that keep positions and layers apart, each a BF16 number."""
    generator = torch.Generator().manual_seed(sum(name.encode()))
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.ndim == 2:
                sigma = (2.0 if "q_proj" in key else 1.0) / weight.shape[1] ** 0.5
                weight.copy_(torch.randn(weight.shape, generator=generator) * sigma)
            elif "norm" in key:
                # Gemma stores norms less one.
                weight.copy_(weight + torch.randn(weight.shape, generator=generator) * 0.3)
            else:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.5)
            weight.copy_(weight.to(torch.bfloat16).to(torch.float32))


def stored_tensors(model, nested):
    tensors = {k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    if nested:
        tensors = {f"language_model.{k}": v for k, v in tensors.items()}
        tensors["vision_tower.vision_model.embeddings.patch_embedding.weight"] = torch.zeros(2, 3, 2, 2)
        tensors["multi_modal_projector.mm_input_projection_weight"] = torch.zeros(2, 2, dtype=torch.bfloat16)
    return tensors


def write_tensors(tensors, folder, files):
    if files == 1:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    names = sorted(tensors)
    share = (len(names) + files - 1) // files
    weight_map = {}
    for i in range(files):
        file = f"model-{i + 1:05}-of-{files:05}.safetensors"
        part = {k: tensors[k] for k in names[i * share:(i + 1) * share]}
        save_file(part, folder / file, {"format": "pt"})
        weight_map.update({k: file for k in part})
    size = sum(v.numel() * v.element_size() for v in tensors.values())
    with open(folder / "model.safetensors.index.json", "w") as out:
        json.dump({"metadata": {"total_size": size}, "weight_map": weight_map}, out, indent=1, sort_keys=True)


def write_config(config, folder, nested):
    # As people's files have it: what differs from the defaults, under the names of the library's version.
    fields = config.to_diff_dict()
    for unwanted in ("_name_or_path", "dtype", "torch_dtype", "transformers_version", "layer_types",
                     "_attn_implementation_autoset"):
        fields.pop(unwanted, None)
    fields["model_type"] = config.model_type
    for field in ("num_key_value_heads", "sliding_window", "max_position_embeddings", "head_dim"):
        if getattr(config, field, None) is not None:
            fields[field] = getattr(config, field)
    if nested:
        fields = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": fields}
    with open(folder / "config.json", "w") as out:
        json.dump(fields, out, indent=1, sort_keys=True)


def write(name, config, kind, nested, files):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config._attn_implementation = "eager"
    model = kind(config).to(torch.float32).eval()
    randomise(model, name)
    ids = numpy.random.RandomState(7).randint(3, VOCABULARY, TOKENS).tolist()
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].float()
        # Without its windows and its scaling a model must answer differently: else the fixture shows nothing.
    write_tensors(stored_tensors(model, nested), folder, files)
    write_config(config, folder, nested)
    logits.numpy().astype("<f4").tofile(folder / "logits.f32")
    with open(folder / "reference.json", "w") as out:
        json.dump({"prompt_ids": ids, "logits_shape": list(logits.shape), "torch": torch.__version__,
                   "transformers": transformers.__version__}, out)
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size / 1000:.0f} kB, logits {logits.min():.2f} to {logits.max():.2f}", flush=True)


def main():
    torch.set_num_threads(1)
    for fixture in fixtures():
        if len(sys.argv) < 2 or fixture[0] in sys.argv[1:]:
            write(*fixture)


if __name__ == "__main__":
    main()
