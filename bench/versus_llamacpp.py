#!/usr/bin/env python3
"""This engine beside llama.cpp's own benches: the same file, the same threads, turn by turn, in one run.

    bench/versus_llamacpp.py MODEL.gguf [--prompt 512] [--generate 32] [--depth 0] [--batch 1] [--pairs 5]
                             [--variant native|avx512|avx2] [--no-repack] [--json OUT.json]

Prints the medians of both, and the median and spread of the ratios of each pair. What the machine gives is measured before and
after each pair; a pair during which it changed by more than a tenth is measured again. The peer is built by bench/build_llamacpp.

--variant avx512|avx2: the peer built without AMX, or without AVX-512 too, and this engine held to the same instructions.
--depth: tokens in the cache before the prompt; the peer then counts with the better of flash attention on and off.
--batch: sequences decoded together.
--no-repack measures the peer without its AMX buffers and repacked weights.
"""
import argparse
import json
import os
import sys
from pathlib import Path

from measured import drift, llamacpp, run_json, spread

ROOT = Path(__file__).resolve().parent.parent
MOST_DRIFT = 0.1
MOST_TRIES = 4  # of one pair, on a machine that does not come to rest


def isa_environment(variant):
    return dict(os.environ) if variant == "native" else dict(os.environ, SHOAL_ISA=variant)


def ceilings(args):
    report = run_json([args.binary, "bench", "machine", "--threads", args.threads, "--json"], env=isa_environment(args.variant))
    return {name: figure["together"] for name, figure in report["ceilings"].items()}, report["machine"]


def ours(args):
    report = run_json([args.binary, "bench", "engine", args.model, "--prompt", args.prompt, "--generate", args.generate, "--depth", args.depth,
                       "--batch", args.batch, "--threads", args.threads, "--repeat", 1, "--json"], env=isa_environment(args.variant))
    run = report["runs"][0]
    return {"prefill": run["prefill_tokens_per_s"], "decode": run["decode_tokens_per_s"]}


def theirs(args):
    repack = int(not args.no_repack)
    if args.batch > 1:
        room = args.batch * (args.prompt + args.generate) + args.batch
        command = [args.peer / "llama-batched-bench", "-m", args.model, "-c", room, "-npp", args.prompt, "-ntg", args.generate, "-npl", args.batch,
                   "-t", args.threads, "-tb", args.threads, "--output-format", "jsonl"]
        row = run_json(command + ([] if repack else ["--no-repack"]), lines=True)[0]
        return {"prefill": row["speed_pp"], "decode": row["speed_tg"]}
    rows = run_json([args.peer / "llama-bench", "-m", args.model, "-p", args.prompt, "-n", args.generate, "-d", args.depth,
                     "-fa", "0,1" if args.depth > 0 else "0", "-t", args.threads, "-r", 1, "-o", "json", "--repack", repack])
    best = {}
    for row in rows:
        key = "prefill" if row["n_prompt"] else "decode"
        best[key] = max(best.get(key, 0), row["avg_ts"])
    return best


def measured_pair(args):
    for attempt in range(MOST_TRIES):
        before, machine = ceilings(args)
        mine = ours(args)
        peer = theirs(args)
        after, _ = ceilings(args)
        moved = drift(before, after)
        if moved <= MOST_DRIFT:
            break
        print(f"  the machine changed by {100 * moved:.0f} % during the pair" + ("; once more" if attempt + 1 < MOST_TRIES else "; kept"),
              file=sys.stderr)
    return {"shoal": mine, "llama.cpp": peer, "ratio": {key: mine[key] / peer[key] for key in mine},
            "ceilings": {"before": before, "after": after, "drift": moved}}, machine


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--variant", default="native", choices=["native", "avx512", "avx2"], help="instructions of both sides")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=32)
    parser.add_argument("--depth", type=int, default=0, help="tokens in the cache before the prompt")
    parser.add_argument("--batch", type=int, default=1, help="sequences decoded together")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--no-repack", action="store_true", help="the peer without its repacked weights")
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.batch > 1 and args.depth > 0:
        parser.error("--batch and --depth: the peer's benches take one of them at a time")
    args.peer = llamacpp(args.variant)

    runs, machine = [], None
    for pair in range(args.pairs):
        run, machine = measured_pair(args)
        runs.append(run)
        read = run["ceilings"]["before"]["read"]
        print(f"pair {pair + 1} (read {read:.1f} GB/s): " + ", ".join(
            f"{key} {run['shoal'][key]:.1f} / {run['llama.cpp'][key]:.1f} = {ratio:.2f}x" for key, ratio in run["ratio"].items()), file=sys.stderr)
    median = {who: {key: spread([run[who][key] for run in runs]) for key in ("prefill", "decode")} for who in ("shoal", "llama.cpp", "ratio")}
    first = runs[0]["ceilings"]["before"]
    print("ceilings " + ", ".join(f"{name} {figure:.2f} {'GB/s' if name == 'read' else 'T/s'}" for name, figure in first.items()))
    at_depth = f" at depth {args.depth}" if args.depth else ""
    for key, unit in (("prefill", f"{args.prompt}-token prompts{at_depth}"),
                      ("decode", f"{args.batch} sequence{'s' if args.batch > 1 else ''}{at_depth}")):
        ratio = median["ratio"][key]
        print(f"{key:8} shoal {median['shoal'][key]['median']:8.1f} tokens/s, llama.cpp {median['llama.cpp'][key]['median']:8.1f}: "
              f"{ratio['median']:.2f}x [{ratio['min']:.2f} .. {ratio['max']:.2f}] ({unit})")
    if args.json:
        Path(args.json).write_text(json.dumps({
            "bench": "versus_llamacpp", "machine": machine, "ceilings": runs[0]["ceilings"],
            "params": {"model": Path(args.model).name, "prompt": args.prompt, "generate": args.generate, "depth": args.depth, "batch": args.batch,
                       "threads": args.threads, "pairs": args.pairs, "repack": not args.no_repack},
            "runs": runs, "median": median, "peer": f"llama.cpp of llama-cpp-python 0.3.36, {args.variant}"}, indent=2) + "\n")


if __name__ == "__main__":
    main()
