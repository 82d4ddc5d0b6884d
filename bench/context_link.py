#!/usr/bin/env python3
"""From how many tokens on do a prompt's pages travel unnoticed between two hosts? Formula beside measurement.

    bench/context_link.py MODEL --gflops F [--tokens 512,768,1024,1280] [--repeat 3] [--json OUT.json]

Two ranks of one thread (`--cp 2 --cp-force 2`) in network namespaces joined by a link of 1 Gbit/s compute prompts in one step each. What a
rank waited for pages, less than the link takes by as long as it attended to its own, grows with the prompt's length and falls with its
square; where the fit of both comes to zero is the measured threshold. --gflops: what one rank's attention does, as `shoal bench context
MODEL --only prefill` prints it. Needs root (ip, tc), and cores for the network beside the ranks' two.
"""
import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests/serving"), str(ROOT / "tests/cluster")]
LINK = 125e6  # bytes a second


def totals(server):
    """cp_ring of each rank, once two beats say the same."""
    last = None
    for _ in range(20):
        now = [rank["traffic"].get("cp_ring", {}) for rank in server.worker()["ranks"]]
        if now == last:
            return now
        last = now
        time.sleep(1.1)
    sys.exit("the ledger does not come to rest")


def waited(server, tokens, repeat):
    """Seconds that the rank which waits longest waits for one prompt; seconds that its exchanges took; bytes."""
    found = []
    for _ in range(repeat):
        before = totals(server)
        prompt = [random.randrange(300, 30_000) for _ in range(tokens)]
        status, body = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0})
        if status != 200:
            sys.exit(f"{status}: {body}")
        deltas = [{key: value - past.get(key, 0) for key, value in rank.items()} for rank, past in zip(totals(server), before)]
        worst = max(deltas, key=lambda each: each["exposed_seconds"])
        found.append((worst["exposed_seconds"], worst["exposed_seconds"] + worst["hidden_seconds"], max(each["payload_bytes"] for each in deltas)))
    return sorted(found)[len(found) // 2]


def root_of_fit(points):
    """Where a n - b n^2, fitted to the points, is zero."""
    s2 = sum(n ** 2 for n, _ in points)
    s3 = sum(n ** 3 for n, _ in points)
    s4 = sum(n ** 4 for n, _ in points)
    y1 = sum(n * y for n, y in points)
    y2 = sum(n ** 2 * y for n, y in points)
    det = s2 * s4 - s3 ** 2
    a, b = (y1 * s4 - y2 * s3) / det, (y1 * s3 - y2 * s2) / det
    return a / b


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--gflops", type=float, required=True)
    parser.add_argument("--heads", default="32,8", help="query and KV heads")
    parser.add_argument("--tokens", default="512,768,1024,1280")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json")
    args = parser.parse_args()
    from namespaces import Network, why_not
    if reason := why_not():
        print(f"skipped: {reason}")
        return
    from cluster import Cluster

    query_heads, kv_heads = map(int, args.heads.split(","))
    predicted = 2 * kv_heads * 2 * args.gflops * 1e9 / (query_heads * LINK)
    tokens = [int(each) for each in args.tokens.split(",")]
    rows = []
    with Network(2) as network, Cluster(network, os.path.abspath(args.model), [0, 1], "--cp", 2, "--cp-force", 2, "--prefill-chunk", max(tokens),
                                        "--ctx", max(tokens) + 100) as cluster:
        waited(cluster.server, max(tokens), 1)
        for n in tokens:
            exposed, took, payload = waited(cluster.server, n, args.repeat)
            rows.append({"tokens": n, "exposed_seconds": exposed, "took_seconds": took, "payload_bytes": payload})
            print(f"{n} tokens: {payload / 1e6:.1f} MB of the rank that sends most take {took * 1e3:.1f} ms, waited for {exposed * 1e3:.1f} ms", flush=True)
    measured = root_of_fit([(row["tokens"], row["exposed_seconds"]) for row in rows])
    if measured > 0:
        print(f"hidden from {measured:.0f} tokens on; the formula says {predicted:.0f} ({predicted / measured - 1:+.0%})")
    else:
        print(f"waiting does not fall with these lengths: the ranks wait for each other more than for the link; the formula says {predicted:.0f}")
    if args.json:
        Path(args.json).write_text(json.dumps({"bench": "context_link", "params": {key: str(value) for key, value in vars(args).items()}, "runs": rows,
                                               "median": {"measured": measured, "predicted": predicted}, "peer": None}, indent=2) + "\n")


if __name__ == "__main__":
    main()
