#!/usr/bin/env python3
"""A short question on a long prefix that the server holds in its cache, beside llama.cpp's server on the same file, in turns.

    bench/prefix.py MODEL.gguf [--prefix 2000] [--new 50] [--rounds 5] [--json OUT.json]

Both servers run one after the other with the same threads and context. Each round sends one of each a prefix of its own, then the prefix
with new tokens behind it, and takes the time until the answer of one token. Token ids are sent, so that both see the same prompt;
they repeat by a fixed seed. The peer is built by bench/build_llamacpp.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from measured import free_port, llamacpp, spread

ROOT = Path(__file__).resolve().parent.parent
DEADLINE = 300


def ask(port, tokens):
    """Seconds until the answer of one token, and how many tokens of the prompt came from the cache."""
    body = json.dumps({"prompt": tokens, "max_tokens": 1, "temperature": 0, "cache_prompt": True}).encode()
    begin = time.monotonic()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        usage = json.load(answer)["usage"]
    return time.monotonic() - begin, usage.get("prompt_tokens_details", {}).get("cached_tokens")


def wait_until_ready(process, port):
    end = time.monotonic() + DEADLINE
    while True:
        try:
            ask(port, [1000])
            return
        except (urllib.error.URLError, ConnectionError):  # not listening yet, or 503 while loading
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"{process.args[0]} does not answer")
            time.sleep(0.05)


def measure(command, port, prompts, prefix):
    process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(process, port)
        rounds = []
        for tokens in prompts:
            cold, _ = ask(port, tokens[:prefix])
            warm, cached = ask(port, tokens)
            rounds.append({"prefix_seconds": cold, "new_seconds": warm, "cached_tokens": cached})
        return rounds
    finally:
        process.terminate()
        process.wait(30)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--prefix", type=int, default=2000, help="tokens in the cache")
    parser.add_argument("--new", type=int, default=50, help="tokens behind them")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()

    draw = random.Random(1)
    context = args.prefix + args.new + 64
    runs = {"shoal": [], "llama.cpp": []}
    for _ in range(args.rounds):
        prompt = [draw.randrange(300, 20000) for _ in range(args.prefix + args.new)]
        port = free_port()
        runs["shoal"] += measure([args.binary, "serve", args.model, "--port", port, "--threads", args.threads, "--ctx", context], port, [prompt], args.prefix)
        port = free_port()
        runs["llama.cpp"] += measure([llamacpp() / "llama-server", "-m", args.model, "--port", port, "-t", args.threads, "-c", context, "-np", 1],
                                     port, [prompt], args.prefix)
    median = {who: {key: spread([run[key] for run in each]) for key in ("prefix_seconds", "new_seconds")} for who, each in runs.items()}
    for who, each in runs.items():
        if any((run["cached_tokens"] or args.prefix) < args.prefix * 0.9 for run in each):
            sys.exit(f"{who} did not take the prefix from its cache: {[run['cached_tokens'] for run in each]} of {args.prefix} tokens")
        new = median[who]["new_seconds"]
        print(f"{who:10} prefix of {args.prefix} tokens {median[who]['prefix_seconds']['median']:.2f} s, {args.new} more "
              f"{new['median']:.3f} s [{new['min']:.3f} .. {new['max']:.3f}]")
    ratio = spread([theirs["new_seconds"] / mine["new_seconds"] for mine, theirs in zip(runs["shoal"], runs["llama.cpp"])])
    print(f"{ratio['median']:.1f}x sooner [{ratio['min']:.1f} .. {ratio['max']:.1f}]")
    if args.json:
        Path(args.json).write_text(json.dumps({
            "bench": "prefix", "params": {"model": Path(args.model).name, "prefix": args.prefix, "new": args.new, "threads": args.threads},
            "runs": runs, "median": median, "ratio": ratio, "peer": "llama.cpp of llama-cpp-python 0.3.36, native"}, indent=2) + "\n")


if __name__ == "__main__":
    main()
