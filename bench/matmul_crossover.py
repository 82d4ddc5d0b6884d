#!/usr/bin/env python3
"""Measures from how many rows products by tiles (AMX) are faster than by the vector units, type by type.

    bench/matmul_crossover.py [--types q8_0,q4_0,...] [--threads 2] [--binary build/release/shoal]

Prints the lines of the table in src/kernels/matmul_crossover.h: GB/s of packed weights by one core. Where the machine has no
AMX the last figure is left open. Run it on a quiet machine; it takes about a minute.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS = [1, 2, 4, 8, 12, 16, 24, 32]  # kCrossoverRows
# Passes by tiles of up to 32 rows take the same time, and at 32 rows the default mode takes tiles.
TILE_ROWS = [32]
ENUMERATORS = {"bf16": "kBF16", "q4_0": "kQ4_0", "q4_1": "kQ4_1", "q5_0": "kQ5_0", "q5_1": "kQ5_1", "q8_0": "kQ8_0",
               "q4_k": "kQ4_K", "q5_k": "kQ5_K", "q6_k": "kQ6_K"}


def measure(args, isa, rows):
    """{(type, rows): GB/s of one core}"""
    command = [args.binary, "bench", "kernel", "--kernels", "matmul", "--shapes", "2048x8192", "--threads", str(args.threads), "--json",
               "--types", *args.types, "--rows", *map(str, rows)]
    run = subprocess.run(command, env=dict(os.environ, SHOAL_ISA=isa), capture_output=True, text=True)
    if run.returncode != 0:
        return None, run.stderr.strip()
    speeds = {}
    for result in json.loads(run.stdout)["runs"]:
        weight_type = result["kernel"].split()[-1]
        count = int(re.search(r"(\d+) rows?$", result["shape"]).group(1))
        speeds[weight_type, count] = result["gb_per_s"] / args.threads
    return speeds, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", type=lambda text: text.split(","), default=list(ENUMERATORS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--binary", default=str(ROOT / "build/release/shoal"))
    args = parser.parse_args()
    vector, why = measure(args, "avx512", ROWS)
    if vector is None:
        sys.exit(f"no figures for AVX-512: {why}")
    tiles, why = measure(args, "amx", TILE_ROWS)
    if tiles is None:
        print(f"no figures for tiles: {why}", file=sys.stderr)
    for weight_type in args.types:
        figures = ", ".join(f"{vector[weight_type, rows]:.1f}F" for rows in ROWS)
        last = f"{tiles[weight_type, TILE_ROWS[0]]:.1f}F" if tiles else "?"
        print(f"    {{DType::{ENUMERATORS[weight_type]}, {{{figures}}}, {last}}},")


if __name__ == "__main__":
    main()
