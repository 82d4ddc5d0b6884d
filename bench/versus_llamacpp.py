#!/usr/bin/env python3
"""This engine beside llama.cpp's own bench: the same file, the same threads, turn by turn, in one run.

    bench/versus_llamacpp.py MODEL.gguf [--prompt 512] [--generate 32] [--pairs 5] [--no-repack] [--json OUT.json]

Prints the medians of both, and the median and spread of the ratios of each pair. The peer is built by bench/build_llamacpp.
--no-repack measures it without its AMX buffers and repacked weights.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_json(command):
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{Path(command[0]).name} failed:\n{run.stderr[-2000:]}")
    return json.loads(run.stdout)


def ours(args):
    report = run_json([args.binary, "bench", "engine", args.model, "--prompt", args.prompt, "--generate", args.generate,
                       "--threads", args.threads, "--repeat", 1, "--json"])
    run = report["runs"][0]
    return {"prefill": run["prefill_tokens_per_s"], "decode": run["decode_tokens_per_s"]}, report


def theirs(args):
    rows = run_json([args.peer / "llama-bench", "-m", args.model, "-p", args.prompt, "-n", args.generate, "-t", args.threads,
                     "-r", 1, "-o", "json", "--repack", int(not args.no_repack)])
    return {"prefill" if row["n_prompt"] else "decode": row["avg_ts"] for row in rows}


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--variant", default="native", choices=["native", "avx512", "avx2"], help="how the peer is built")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--no-repack", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()
    built = subprocess.run([ROOT / "bench/build_llamacpp", args.variant], stdout=subprocess.PIPE, text=True, check=True)
    args.peer = Path(built.stdout.strip().splitlines()[-1])

    runs, report = [], None
    for pair in range(args.pairs):
        mine, report = ours(args)
        peer = theirs(args)
        runs.append({"shoal": mine, "llama.cpp": peer, "ratio": {key: mine[key] / peer[key] for key in mine}})
        print(f"pair {pair + 1}: " + ", ".join(f"{key} {mine[key]:.1f} / {peer[key]:.1f} = {mine[key] / peer[key]:.2f}x" for key in mine),
              file=sys.stderr)
    median = {who: {key: spread([run[who][key] for run in runs]) for key in ("prefill", "decode")} for who in ("shoal", "llama.cpp", "ratio")}
    for key, unit in (("prefill", f"{args.prompt}-token prompts"), ("decode", "one sequence")):
        ratio = median["ratio"][key]
        print(f"{key:8} shoal {median['shoal'][key]['median']:8.1f} tokens/s, llama.cpp {median['llama.cpp'][key]['median']:8.1f}: "
              f"{ratio['median']:.2f}x [{ratio['min']:.2f} .. {ratio['max']:.2f}] ({unit})")
    if args.json:
        Path(args.json).write_text(json.dumps({
            "bench": "versus_llamacpp", "machine": report["machine"], "ceilings": report["ceilings"],
            "params": {"model": Path(args.model).name, "prompt": args.prompt, "generate": args.generate, "threads": args.threads,
                       "pairs": args.pairs, "repack": not args.no_repack},
            "runs": runs, "median": median, "peer": f"llama.cpp of llama-cpp-python 0.3.36, {args.variant}"}, indent=2) + "\n")


if __name__ == "__main__":
    main()
