#!/usr/bin/env python3
"""`shoal bench comm` beside Open MPI's collectives: as many ranks, the same sizes, turn by turn, in one run.

    bench/versus_openmpi.py [--ranks 2] [--carriers shm,tcp] [--collectives all_reduce] [--sizes 8192,32768,1048576,16777216]
                            [--pairs 5] [--seconds 0.1] [--json OUT.json]

Prints the medians of both in microseconds and their ratio (below 1: shoal is faster). Open MPI runs over its shared memory (vader) beside
`shm` and over TCP on the loopback interface beside `tcp`. Its program is built with mpicc (Debian: libopenmpi-dev, openmpi-bin) from
bench/collectives_mpi.c; where there is no mpicc the comparison is skipped and says so.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measured import spread

ROOT = Path(__file__).resolve().parent.parent
TRANSPORTS = {"shm": ["--mca", "btl", "self,vader"], "tcp": ["--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"]}


def output(command, **options):
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if run.returncode != 0:
        sys.exit(f"{Path(str(command[0])).name} failed:\n{run.stderr[-2000:]}")
    return run.stdout


def build_peer(folder):
    program = Path(folder) / "collectives_mpi"
    output(["mpicc", "-O2", "-o", program, ROOT / "bench/collectives_mpi.c"])
    return program


def theirs(args, program, carrier):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = ["mpirun", "-np", args.ranks, "--mca", "pml", "ob1", *TRANSPORTS[carrier], "--bind-to", "none"]
    if args.ranks > len(os.sched_getaffinity(0)):
        command += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    lines = output([*command, program, args.seconds, args.collectives, args.sizes], env=environment)
    rows = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return {(carrier, row["collective"], row["bytes"]): row["us"] for row in rows}


def ours(args, carrier):
    report = json.loads(output([args.binary, "bench", "comm", "--ranks", args.ranks, "--carriers", carrier, "--collectives", args.collectives,
                                "--sizes", args.sizes, "--seconds", args.seconds, "--repeat", 1, "--json"]))
    return {(row["carrier"], row["collective"], row["bytes"]): row["median_us"] for row in report["runs"]}, report["machine"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--carriers", default="shm,tcp")
    parser.add_argument("--collectives", default="all_reduce", help="all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,send")
    parser.add_argument("--sizes", default="8192,32768,1048576,16777216")
    parser.add_argument("--pairs", type=int, default=5, help="turns of each side; the medians count")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each case and turn")
    parser.add_argument("--json")
    args = parser.parse_args()
    if shutil.which("mpicc") is None or shutil.which("mpirun") is None:
        print("skipped: no mpicc or mpirun here (Debian: libopenmpi-dev, openmpi-bin)")
        return

    found, machine = {}, None
    with tempfile.TemporaryDirectory() as folder:
        program = build_peer(folder)
        for _ in range(args.pairs):
            for carrier in args.carriers.split(","):
                mine, machine = ours(args, carrier)
                peer = theirs(args, program, carrier)
                for case, us in mine.items():
                    found.setdefault(case, []).append({"shoal_us": us, "openmpi_us": peer[case]})
    rows = []
    print(f"{'carrier':8} {'collective':15} {'bytes':>10} {'shoal us':>10} {'Open MPI us':>12} {'ratio':>6}")
    for (carrier, collective, size), runs in found.items():
        mine, peer = (spread([run[who] for run in runs]) for who in ("shoal_us", "openmpi_us"))
        ratio = mine["median"] / peer["median"]
        rows.append({"carrier": carrier, "collective": collective, "bytes": size, "shoal_us": mine, "openmpi_us": peer, "ratio": ratio})
        print(f"{carrier:8} {collective:15} {size:>10} {mine['median']:>10.1f} {peer['median']:>12.1f} {ratio:>6.2f}")
    if args.json:
        version = output(["mpirun", "--version"]).splitlines()[0]
        Path(args.json).write_text(json.dumps({
            "bench": "versus_openmpi", "machine": machine, "ceilings": None,
            "params": {"ranks": args.ranks, "pairs": args.pairs, "seconds": args.seconds},
            "runs": [{"carrier": c, "collective": n, "bytes": b, "pairs": runs} for (c, n, b), runs in found.items()],
            "median": rows, "peer": version}, indent=2) + "\n")


if __name__ == "__main__":
    main()
