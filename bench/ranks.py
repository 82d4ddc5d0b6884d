#!/usr/bin/env python3
"""Ranks that share a model beside one rank, turn by turn, as parts of what the machine's second core gives.

    bench/ranks.py MODEL.gguf [--cases tp,threads,pp-prefill,pp-decode] [--pairs 5] [--json OUT.json]

Each pair: ceilings, one rank with one thread, the layout with one thread a rank, ceilings. Efficiency is the speed-up divided by
the ceiling's: memory's for decode, that of the instructions the weights use for prefill. A pair during which a ceiling moved by
more than a tenth is measured again.

tp          --tp 2, one sequence: prefill and decode.
threads     --tp 2 against one process with two threads; no ceiling divides it.
pp-prefill  --pp 2 --balance prefill, four prompts of 2,048 tokens.
pp-decode   --pp 2 --balance decode, eight sequences in two plans, against one rank with four.
"""
import argparse
import json
import statistics
import sys
from pathlib import Path

from measured import drift, run_json, spread

ROOT = Path(__file__).resolve().parent.parent
MOST_DRIFT = 0.1
MOST_TRIES = 3  # of one pair, on a machine that does not come to rest
PREFILL_CEILING = {"q8_0": "int8 dot", "q4_0": "int8 dot", "bf16": "bf16 dot"}

# What is compared, the flags of both sides, and the figures that count.
CASES = {
    "tp": {"one": ["--threads", 1], "two": ["--tp", 2, "--threads", 1],
           "both": ["--prompt", 512, "--generate", 32, "--chunk", 512], "figures": ("prefill", "decode")},
    "threads": {"one": ["--threads", 2], "two": ["--tp", 2, "--threads", 1],
                "both": ["--prompt", 512, "--generate", 32, "--chunk", 512], "figures": ("prefill", "decode")},
    "pp-prefill": {"one": ["--threads", 1, "--chunk", 512], "two": ["--pp", 2, "--balance", "prefill", "--threads", 1, "--chunk", 256],
                   "both": ["--prompt", 2048, "--generate", 1, "--batch", 4], "figures": ("prefill",)},
    "pp-decode": {"one": ["--threads", 1, "--batch", 4], "two": ["--pp", 2, "--balance", "decode", "--threads", 1, "--batch", 8],
                  "both": ["--prompt", 64, "--generate", 64], "figures": ("decode",)},
}


def ceilings(binary):
    return run_json([binary, "bench", "machine", "--threads", 2, "--json"])


def scaling(report, name):
    ceiling = report["ceilings"][name]
    return ceiling["together"] / statistics.mean(ceiling["alone"])


def together(report):
    return {name: figure["together"] for name, figure in report["ceilings"].items()}


def measure(args, flags):
    report = run_json([args.binary, "bench", "engine", args.model, "--served", "--repeat", 1, "--json", *flags])
    run = report["runs"][0]
    return {"prefill": run["prefill_tokens_per_s"], "decode": run["decode_tokens_per_s"],
            "stage_busy": {"prefill": run["prefill_stage_busy"], "decode": run["decode_stage_busy"]},
            "tp_exposed_ms": {"prefill": run["prefill_tp_exposed_ms"], "decode": run["decode_tp_exposed_ms"]}}


def scale_of(name, figure, before, after, prefill_ceiling):
    if name == "threads":
        return 1.0
    ceiling = "read" if figure == "decode" else prefill_ceiling
    return (scaling(before, ceiling) + scaling(after, ceiling)) / 2


def measured_pair(args, name):
    case = CASES[name]
    for attempt in range(MOST_TRIES):
        before = ceilings(args.binary)
        one = measure(args, case["one"] + case["both"])
        two = measure(args, case["two"] + case["both"])
        after = ceilings(args.binary)
        moved = drift(together(before), together(after))
        if moved <= MOST_DRIFT:
            break
        print(f"  the machine changed by {100 * moved:.0f} % during the pair" + ("; once more" if attempt + 1 < MOST_TRIES else "; kept"),
              file=sys.stderr)
    scale = {figure: scale_of(name, figure, before, after, args.prefill_ceiling) for figure in case["figures"]}
    efficiency = {figure: two[figure] / one[figure] / scale[figure] for figure in case["figures"]}
    return {"one": one, "two": two, "scale": scale, "efficiency": efficiency,
            "ceilings": {"before": before["ceilings"], "after": after["ceilings"], "drift": moved}}, before["machine"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--cases", default=",".join(CASES), help="of " + ", ".join(CASES))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--prefill-ceiling", help="the ceiling that prefill is divided by; default: by the file's name")
    parser.add_argument("--json")
    args = parser.parse_args()
    unknown = [name for name in args.cases.split(",") if name not in CASES]
    if unknown:
        parser.error(f"--cases: there is no {unknown[0]}; known: {', '.join(CASES)}")
    if args.prefill_ceiling is None:
        found = [ceiling for kind, ceiling in PREFILL_CEILING.items() if kind in Path(args.model).name.lower()]
        args.prefill_ceiling = found[0] if found else "f32 fma"

    runs, machine = {}, None
    for name in args.cases.split(","):
        runs[name] = []
        for pair in range(args.pairs):
            run, machine = measured_pair(args, name)
            runs[name].append(run)
            print(f"{name} pair {pair + 1}: " + ", ".join(
                f"{figure} {run['two'][figure]:.1f} / {run['one'][figure]:.1f} = {run['two'][figure] / run['one'][figure]:.2f}x of "
                f"{run['scale'][figure]:.2f}x: {run['efficiency'][figure]:.3f}" for figure in run["efficiency"]), file=sys.stderr)
    median = {}
    for name, each in runs.items():
        median[name] = {figure: spread([run["efficiency"][figure] for run in each]) for figure in CASES[name]["figures"]}
        for figure, efficiency in median[name].items():
            busy = [statistics.median(shares) for shares in zip(*(run["two"]["stage_busy"][figure] for run in each))]
            exposed = statistics.median(run["two"]["tp_exposed_ms"][figure] for run in each)
            print(f"{name:10} {figure:8} {efficiency['median']:.3f} of ideal [{efficiency['min']:.3f} .. {efficiency['max']:.3f}], stages busy "
                  + ", ".join(f"{100 * share:.0f} %" for share in busy) + f", {exposed:.2f} ms a step waited for sums")
    if args.json:
        Path(args.json).write_text(json.dumps({
            "bench": "ranks", "machine": machine, "ceilings": next(iter(runs.values()))[0]["ceilings"],
            "params": {"model": Path(args.model).name, "cases": args.cases, "pairs": args.pairs, "prefill_ceiling": args.prefill_ceiling},
            "runs": runs, "median": median, "peer": None}, indent=2) + "\n")


if __name__ == "__main__":
    main()
