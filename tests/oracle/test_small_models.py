#!/usr/bin/env python3
"""Small models against llama.cpp's logits, log-likelihoods and greedy answers, on every instruction set.

usage: test_small_models.py [NAME ...]     names as printed; SHOAL_TEST_ISAS=scalar,avx2 chooses instruction sets
"""
import array
import json
import math
import sys
import tempfile

import shoal_process as shoal

# folder, model file (. is the folder itself) with flags for it, reference file, rounded: whether llama.cpp rounded activations in the reference (to 8 bits for
# quantised weights, to bf16 for bf16 ones), which f32 activations cannot follow.
MODELS = [
    ("stories260k", "stories260K-f32.gguf", "reference.jsonl", False),
    ("aidreams260k", "aidreams260K-f32.gguf", "reference.jsonl", False),
    ("babyllama-105", "babyllama-105-f32.gguf", "reference.jsonl", False),
    ("story-656k", "story-656k-f32.gguf", "reference.jsonl", False),
    ("story-656k", "story-656k-f16.gguf", "reference-f16.jsonl", False),
    # These weights are bf16 numbers, so the f32 file's reference is the bf16 file's with f32 activations.
    ("story-656k", "story-656k-bf16.gguf", "reference.jsonl", False),
    ("story-656k", "story-656k-bf16.gguf", "reference-bf16.jsonl", True),
    ("story-656k", "story-656k-q8_0.gguf", "reference-q8_0.jsonl", True),
    ("story-656k", "story-656k-q5_1.gguf", "reference-q5_1.jsonl", True),
    ("story-656k", "story-656k-q5_0.gguf", "reference-q5_0.jsonl", True),
    ("story-656k", "story-656k-q4_1.gguf", "reference-q4_1.jsonl", True),
    ("story-656k", "story-656k-q4_0.gguf", "reference-q4_0.jsonl", True),
    ("llama2-tiny-random-gguf", "llama-2-tiny-random.gguf", "reference.jsonl", False),
    ("random-qwen2", "random-qwen2-bf16.gguf", "reference.jsonl", False),
    ("random-qwen3", "random-qwen3-bf16.gguf", "reference.jsonl", False),
    ("random-kquants", "random-q4_k_m.gguf", "reference-q4_k_m.jsonl", True),
    ("random-kquants", "random-q5_k_m.gguf", "reference-q5_k_m.jsonl", True),
    ("random-kquants", "random-q6_k.gguf", "reference-q6_k.jsonl", True),
    # Types that are packed as another.
    ("random-kquants", "random-q2_k.gguf", "reference-q2_k.jsonl", True),
    ("random-kquants", "random-q3_k_m.gguf", "reference-q3_k_m.jsonl", True),
    ("random-kquants", "random-iq4_nl.gguf", "reference-iq4_nl.jsonl", True),
    ("random-kquants", "random-iq4_xs.gguf", "reference-iq4_xs.jsonl", True),
    # Hugging Face folders.
    ("stories260k", "hf", "reference.jsonl", False),
    ("aidreams260k", "hf", "reference.jsonl", False),
    ("babyllama-105", "hf", "reference.jsonl", False),
    ("story-656k", ".", "reference.jsonl", False),
    ("random-qwen2", ".", "reference.jsonl", False),
    ("random-qwen3", ".", "reference.jsonl", False),
    # Converted while loading. The quantised file has its embedding rows rounded too, which shifts the log-likelihood
    # by 2 % with q4_0: that type's bytes are compared in tests/unit/model/weights_test.cc.
    ("story-656k", ". --weights bf16", "reference.jsonl", False),
    ("story-656k", ". --weights q8_0", "reference-q8_0.jsonl", True),
]
FLAGS = ["--kv-dtype", "f32", "--activations", "f32"]
LARGEST_RELATIVE = 1e-3
LARGEST_NLL_SHIFT = 0.01


def read_floats(path):
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    return values


def all_logits(model, prompts, greedy, isa):
    """Answers, and for each prompt the rows of logits of its positions."""
    path, *weights = str(model).split(" --weights ")
    flags = ["--weights", *weights] if weights else []
    with tempfile.NamedTemporaryFile(suffix=".f32") as file:
        answers = shoal.score(path, prompts, [*FLAGS, *flags, "--greedy", greedy, "--logits", file.name], isa)
        values = read_floats(file.name)
    width = len(values) // sum(map(len, prompts))
    rows, at = [], 0
    for ids in prompts:
        rows.append([values[(at + i) * width:(at + i + 1) * width] for i in range(len(ids))])
        at += len(ids)
    return answers, rows


def compare_logits(rows, reference, folder):
    """Largest difference and largest logit over the prompt's positions."""
    want = read_floats(folder / reference["logits_file"])
    got = [v for row in rows for v in row]
    assert len(want) == len(got), f"{len(got)} logits, {len(want)} in the reference"
    assert all(map(math.isfinite, got)), "a logit is not finite"
    return max(abs(a - b) for a, b in zip(got, want)), max(map(abs, want))


def compare_greedy(reference, got, model, noise, isa):
    """The continuations agree up to the first step where the two candidates are closer than min_margin, or than the
    logits of the two implementations differ anyway. Gives the steps that agree."""
    want = reference["greedy_ids"]
    assert len(got) >= len(want), f"{len(got)} greedy tokens of {len(want)}"
    step = next((i for i, (mine, theirs) in enumerate(zip(got, want)) if mine != theirs), len(want))
    if step < len(want):
        _, rows = all_logits(model, [reference["prompt_ids"] + want[:step]], 0, isa)
        gap = rows[0][-1][got[step]] - rows[0][-1][want[step]]
        allowed = max(reference["min_margin"], noise)
        assert gap <= allowed, f"greedy step {step}: {got[step]}, not {want[step]}, by {gap:.4f} (allowed {allowed:.4f})"
    return step


def check_model(folder_name, file, reference_file, rounded, isa):
    folder = shoal.require_shared("models", folder_name)
    references = [json.loads(line) for line in open(folder / reference_file)]
    prompts = [r["prompt_ids"] for r in references]
    longest = max(len(r["greedy_ids"]) for r in references)
    answers, rows = all_logits(folder / file, prompts, longest, isa)
    difference = largest = nll = 0.0
    steps = 0
    for reference, answer, prompt_rows in zip(references, answers, rows):
        if "logits_file" in reference:
            d, l = compare_logits(prompt_rows, reference, folder)
            difference, largest = max(difference, d), max(largest, l)
        want, got = sum(reference["prompt_nll"]), -sum(answer["logprobs"])
        if want > 0:
            nll = max(nll, abs(got - want) / want)
    relative = difference / largest
    for reference, answer in zip(references, answers):
        steps += compare_greedy(reference, answer["greedy"], folder / file, 2 * difference, isa)
    total = sum(len(r["greedy_ids"]) for r in references)
    name = f"{folder_name}/{file}" if file[0] == "." or file == "hf" else file
    print(f"  {isa:7} {name:28} logits {relative:.1e}  nll {nll:.1e}  greedy {steps} of {total} steps", flush=True)
    if not rounded:
        assert relative <= LARGEST_RELATIVE, f"logits differ by {relative:.2e} of the largest"
    assert nll <= LARGEST_NLL_SHIFT, f"prompt log-likelihood differs by {nll:.2%}"


def main():
    shoal.require_shared("models")
    wanted = sys.argv[1:]
    failures = 0
    for folder, file, reference, rounded in MODELS:
        if wanted and not any(w in f"{folder}/{file}" for w in wanted):
            continue
        for isa in shoal.isas():
            try:
                check_model(folder, file, reference, rounded, isa)
            except (AssertionError, RuntimeError) as error:
                failures += 1
                print(f"FAILED {file} on {isa}: {error}", flush=True)
    print("failed" if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
