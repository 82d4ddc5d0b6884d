#!/usr/bin/env python3
"""One worker with context parallelism beside two workers without, on the same cores: short prompts, with and without a long one.

    bench/context_mix.py MODEL [--pairs 5] [--prompts 24] [--streams 6] [--long 14000] [--forced] [--json OUT.json]

Each side is asked the same prompts of 1,000 to 2,000 tokens by as many streams, turn by turn; then the same again with a long prompt
that comes half a second after the first. The two workers get each prompt by least tokens outstanding, as a gateway would send it.
--forced adds a worker whose coordinates compute every prompt together (--cp-force 2). Prints medians: tokens of prompts a second, the
long prompt's time to first token, and each against the two workers. `shoal synth llama-1b FILE --layers 2` writes a model whose
layers are those of 1B parameters and that needs seconds instead of minutes.
"""
import argparse
import http.client
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from measured import spread

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 30_000  # every model's is larger
ANSWER = 4  # tokens


class Worker:
    def __init__(self, args, flags):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="shoal-mix-")
        self.process = subprocess.Popen([args.binary, "serve", args.model, "--port", "0", "--threads", "1", "--ctx", str(args.long + 1000), *flags],
                                        stdout=self.log, stderr=self.log)
        self.outstanding = 0

    def await_ready(self):
        for _ in range(2400):
            if found := re.search(r"^listening on http://([\d.]+):(\d+)", Path(self.log.name).read_text(), re.M):
                self.address = found[1], int(found[2])
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit("shoal serve did not start:\n" + Path(self.log.name).read_text())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


class Side:
    """The workers that answer together."""

    def __init__(self, name, workers):
        self.name, self.workers, self.lock = name, workers, threading.Lock()

    def ask(self, prompt):
        """Seconds to the first token."""
        with self.lock:
            worker = min(self.workers, key=lambda each: each.outstanding)
            worker.outstanding += len(prompt)
        begin = time.monotonic()
        try:
            connection = http.client.HTTPConnection(*worker.address, timeout=600)
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": prompt, "max_tokens": ANSWER, "ignore_eos": True, "stream": True, "temperature": 0}), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                sys.exit(f"{self.name} answered {response.status}: {response.read().decode()}")
            first = None
            for line in response:
                if first is None and line.startswith(b"data: {"):
                    first = time.monotonic() - begin
            return first
        finally:
            with self.lock:
                worker.outstanding -= len(prompt)

    def run(self, args, prompts, long_prompt=None):
        """All short prompts by --streams streams. Returns tokens of prompts a second, and the long prompt's time to first token."""
        waiting, taken = list(prompts), threading.Lock()
        failures, long_first = [], []

        def stream():
            try:
                while True:
                    with taken:
                        if not waiting:
                            return
                        prompt = waiting.pop()
                    self.ask(prompt)
            except BaseException as error:  # also sys.exit: threads would swallow it
                failures.append(error)

        def late():
            time.sleep(0.5)
            try:
                long_first.append(self.ask(long_prompt))
            except BaseException as error:
                failures.append(error)

        begin = time.monotonic()
        threads = [threading.Thread(target=stream) for _ in range(args.streams)]
        if long_prompt:
            threads.append(threading.Thread(target=late))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            sys.exit(f"{self.name}: {failures[0]}")
        tokens = sum(map(len, prompts)) + len(long_prompt or [])
        return tokens / (time.monotonic() - begin), long_first[0] if long_prompt else None


def draw(rng, length):
    return [rng.randrange(300, VOCABULARY) for _ in range(length)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--pairs", type=int, default=5, help="turns of each side; the medians count")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--streams", type=int, default=6)
    parser.add_argument("--long", type=int, default=14000)
    parser.add_argument("--forced", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    kinds = {"two workers": [[], []], "cp 2": [["--cp", "2"]]}
    if args.forced:
        kinds["cp 2 forced"] = [["--cp", "2", "--cp-force", "2"]]
    rng, found = random.Random(args.seed), {}
    with ExitStack() as stack:
        sides = [Side(name, [stack.enter_context(Worker(args, flags)) for flags in workers]) for name, workers in kinds.items()]
        for side in sides:
            for worker in side.workers:
                worker.await_ready()
        # The cost models learn while they serve, and memory is touched.
        warm = [draw(rng, 1500) for _ in range(4)]
        for side in sides:
            side.run(args, warm)
        for turn in range(args.pairs):
            # Drawn anew: nobody finds anything in a cache, and all sides get the same.
            short = [draw(rng, rng.randrange(1000, 2001)) for _ in range(args.prompts)]
            beside = [draw(rng, rng.randrange(1000, 2001)) for _ in range(args.prompts)]
            long_prompt = draw(rng, args.long)
            for side in sides if turn % 2 == 0 else sides[::-1]:
                alone, _ = side.run(args, short)
                mixed, first = side.run(args, beside, long_prompt)
                found.setdefault(side.name, []).append({"short_tps": alone, "mixed_tps": mixed, "long_ttft": first})
                print(f"turn {turn}: {side.name}: {alone:.0f} tokens/s; with the long prompt {mixed:.0f} tokens/s, its first token after {first:.2f} s", flush=True)
    rows = []
    for name, runs in found.items():
        row = {"side": name, **{key: spread([run[key] for run in runs]) for key in runs[0]}}
        base = found["two workers"]
        ratio = {key: spread([run[key] / two[key] for run, two in zip(runs, base)])["median"] for key in runs[0]}
        rows.append({**row, "against_two": ratio})
        print(f"{name:12} {row['short_tps']['median']:8.0f} tokens/s ({ratio['short_tps']:.3f}); with the long prompt {row['mixed_tps']['median']:8.0f} "
              f"({ratio['mixed_tps']:.3f}), first token {row['long_ttft']['median']:6.2f} s ({1 / ratio['long_ttft']:.2f} times as soon)")
    if args.json:
        Path(args.json).write_text(json.dumps({"bench": "context_mix", "params": {key: str(value) for key, value in vars(args).items()},
                                               "runs": found, "median": rows, "peer": None}, indent=2) + "\n")


if __name__ == "__main__":
    main()
