#!/usr/bin/env python3
"""What the gateway adds: the same requests to workers without a model, straight and through it, in turns.

    bench/gateway.py [--rate 2000] [--seconds 5] [--rounds 3] [--pairs] [--json OUT.json]

Open loop: requests leave at drawn times, whatever has been answered. The workers' answers take no time of a model (--decode-ms 0), so
that what is left is the way. Prints the median and the 99th percentile of the whole answer's time either way, what the gateway adds to
both, and its processor time for each request (with --tokens N: of N events each). --pairs: a prefill and a decode worker in place of two whole ones;
straight is then still one whole worker.
"""
import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from measured import run_json, spread

ROOT = Path(__file__).resolve().parent.parent
TICK = os.sysconf("SC_CLK_TCK")


def start(command, what):
    """The process, and the ports that it prints, the one of `listening on` last."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = []
    for line in iter(process.stdout.readline, ""):
        lines.append(line.strip())
        if line.startswith("listening"):
            return process, [int(line.rsplit(":", 1)[-1]) for line in lines]
    sys.exit(f"{what} did not start: {lines}")


def cpu_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def load(args, port):
    """What the one run of it says, and how many requests it sent."""
    report = run_json([args.binary, "bench", "serve", "--url", f"http://127.0.0.1:{port}", "--rate", args.rate, "--duration", args.seconds,
                     "--prompt-tokens", 100, "--max-tokens", args.tokens, "--keep-alive", "--json"])
    return {**report["runs"][0], "requests": report["params"]["requests"], "machine": report["machine"]}


def wait_for(port, workers):
    """Until the gateway takes requests for so many."""
    deadline = time.monotonic() + 20
    while json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/get_server_info"))["workers"] < workers or unready(port):
        if time.monotonic() > deadline:
            sys.exit("the gateway does not hear of its workers")
        time.sleep(0.05)


def unready(port):
    listed = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/workers"))["workers"]
    return not all(worker["available"] for worker in listed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--rate", type=float, default=2000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=1, help="of each answer; each is an event")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()

    fast = ["--decode-ms", 0, "--decode-row-us", 0, "--prefill-tok-s", 1e9]
    whole, ports = start([args.binary, "fake-worker", "--ports", "0x2", *fast], "the workers")
    workers, named = [whole], [word for port in ports[:2] for word in ("--worker", f"http://127.0.0.1:{port}")]
    if args.pairs:
        named = []
        for role in ("prefill", "decode"):
            worker, of_role = start([args.binary, "fake-worker", "--ports", "0x1", "--role", role, *fast], role)
            workers.append(worker)
            named += [f"--{role}", f"http://127.0.0.1:{of_role[0]}"]
    gateway, front = start([args.binary, "gateway", "--port", 0, "--log-level", "warn", *named], "the gateway")
    runs = []
    try:
        wait_for(front[-1], len(named) // 2)
        load(args, front[-1])  # connections are open and profiles learned
        for _ in range(args.rounds):
            straight = load(args, ports[0])
            before = cpu_seconds(gateway)
            through = load(args, front[-1])
            machine = through["machine"]
            used = cpu_seconds(gateway) - before
            runs.append({
                "straight_ms": straight["e2e_ms"], "through_ms": through["e2e_ms"],
                "added_p50_ms": through["e2e_ms"]["p50"] - straight["e2e_ms"]["p50"],
                "added_p99_ms": through["e2e_ms"]["p99"] - straight["e2e_ms"]["p99"],
                "gateway_cpu_us_per_request": 1e6 * used / through["requests"]})
    finally:
        for process in (gateway, *workers):
            process.terminate()
            process.wait()
    median = {name: spread([run[name] for run in runs]) for name in ("added_p50_ms", "added_p99_ms", "gateway_cpu_us_per_request")}
    for name, values in median.items():
        print(f"{name:28}{values['median']:10.3f}   {values['min']:.3f} to {values['max']:.3f}")
    if args.json:
        Path(args.json).write_text(json.dumps({
            "bench": "gateway", "machine": machine,
            "ceilings": {"offered_requests_per_s": args.rate},
            "params": {"rate": args.rate, "seconds": args.seconds, "tokens": args.tokens, "pairs": args.pairs}, "runs": runs,
            "median": median, "peer": None}, indent=1) + "\n")


if __name__ == "__main__":
    main()
