#!/usr/bin/env python3
"""What long prompts do to the answers beside them: a prefill and a decode worker with a core each, and one worker with both cores.

    bench/handover_gap.py MODEL.gguf [--turns 5] [--streams 8] [--prompt 6000] [--idle 8] [--json OUT.json] [--svg OUT.svg]

Turn by turn on either side: so many streams run, alone for --idle seconds, then while a prompt of --prompt tokens is computed, handed
over and answered with two tokens. Gaps are those that the streams' client sees between two tokens; p99 of the second stretch is set
against that of the first. --json FILE that is there already is continued: its turns count, and the next ones are added. Also prints
how much of its core each process took while the prompt was computed. Servers run through `shoal pair`; --carrier tcp sends KV as
between hosts. The SVG shows the last turn.
"""
import argparse
import http.client
import json
import os
import random
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from measured import drift, run_json, spread

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 30_000  # every model's is larger
PATIENCE = 600  # seconds for any one answer


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Process:
    """A shoal process that listens, bound to some cores."""

    def __init__(self, args, command, cores):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="shoal-gap-")
        self.process = subprocess.Popen([str(part) for part in (args.binary, *command)], stdout=self.log, stderr=self.log,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cores))
        for _ in range(2400):
            if found := re.search(r"^listening on (http://([\d.]+):(\d+))", Path(self.log.name).read_text(), re.M):
                self.url, self.address = found[1], (found[2], int(found[3]))
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit(f"shoal {command[0]} did not start:\n" + Path(self.log.name).read_text())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def cpu_seconds(self):
        """utime and stime: fields 14 and 15, counted behind the name, which may hold blanks."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def info(self):
        connection = http.client.HTTPConnection(*self.address, timeout=20)
        connection.request("GET", "/get_server_info")
        return json.loads(connection.getresponse().read())


class Side:
    """Where the requests go, and the processes that compute."""

    def __init__(self, name, address, workers):
        self.name, self.address, self.workers = name, address, workers

    def ask(self, prompt, tokens, on_token, over=None):
        """One streamed answer; on_token(time) at every event with a token. over: an event that ends it early."""
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True, "temperature": 1, "seed": 1}),
            {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            sys.exit(f"{self.name} answered {response.status}: {response.read().decode()}")
        for line in response:
            if over is not None and over.is_set():
                break
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if "error" in event:
                    sys.exit(f"{self.name}: {event['error']}")
                if event["choices"]:
                    on_token(time.monotonic())
        connection.close()

    def turn(self, args, rng):
        gaps, failures, over, begun, lock = [], [], threading.Event(), threading.Semaphore(0), threading.Lock()

        def talk(prompt):
            last = None

            def on_token(at):
                nonlocal last
                if last is None:
                    begun.release()
                else:
                    with lock:
                        gaps.append((at, at - last))
                last = at

            try:
                self.ask(prompt, args.answer, on_token, over)
                if not over.is_set():
                    sys.exit(f"a stream of {args.answer} tokens ended before the prompt was computed: ask for more with --answer")
            except BaseException as error:  # also sys.exit: threads would swallow it
                failures.append(error)
                begun.release()

        threads = [threading.Thread(target=talk, args=([rng.randrange(300, VOCABULARY) for _ in range(40)],)) for _ in range(args.streams)]
        for thread in threads:
            thread.start()
        for _ in threads:
            if not begun.acquire(timeout=PATIENCE):
                sys.exit(f"{self.name}: the streams have not begun")
        time.sleep(1)
        quiet = time.monotonic()
        time.sleep(args.idle)
        first, cpu, sent = [], [worker.cpu_seconds() for worker in self.workers], time.monotonic()
        self.ask([rng.randrange(300, VOCABULARY) for _ in range(args.prompt)], 2, first.append)
        done = time.monotonic()
        busy = [(worker.cpu_seconds() - before) / (done - sent) for worker, before in zip(self.workers, cpu)]
        time.sleep(1)
        over.set()
        for thread in threads:
            thread.join()
        if failures:
            sys.exit(f"{self.name}: {failures[0]}")
        idle = [gap for at, gap in gaps if quiet <= at <= sent]
        beside = [gap for at, gap in gaps if sent < at <= done]
        figures = {"ttft_s": first[0] - sent, "cores": busy}
        for name, values in (("idle", idle), ("beside", beside)):
            figures[name] = {"gaps": len(values), "p50_s": percentile(values, 0.5), "p99_s": percentile(values, 0.99), "max_s": max(values)}
        figures["ratio"] = figures["beside"]["p99_s"] / figures["idle"]["p99_s"]
        return figures, {"gaps": [(at - quiet, gap) for at, gap in gaps if at >= quiet], "sent": sent - quiet, "done": first[0] - quiet}


def svg(sides, title):
    """Every gap as a dot over time, one strip for each side, the long prompt's stay as a band."""
    width, strip, left, top, right, between = 860, 210, 60, 40, 16, 46
    height = top + len(sides) * (strip + between)
    t_end = max(side["done"] for side in sides.values()) + 1
    y_max = 1.1 * max(gap for side in sides.values() for _, gap in side["gaps"])
    x = lambda t: left + (width - left - right) * t / t_end
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>', f'<text x="{left}" y="20" font-size="14">{title}</text>']
    step = next(step for step in (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10**9) if 1000 * y_max / step <= 8)
    for index, (name, side) in enumerate(sides.items()):
        base = top + index * (strip + between) + strip
        y = lambda gap: base - (strip - 18) * gap / y_max
        parts.append(f'<rect x="{x(side["sent"]):.1f}" y="{base - strip + 4}" width="{x(side["done"]) - x(side["sent"]):.1f}" height="{strip - 4}" fill="#fde8c8"/>'
                     f'<text x="{x(side["sent"]) + 4:.1f}" y="{base - strip + 16}" fill="#8a5a00">a long prompt is computed</text>'
                     f'<text x="{left + 4}" y="{base - strip + 16}" font-weight="bold">{name}</text>')
        for tick in range(0, int(1000 * y_max) + 1, step):
            at = y(tick / 1000)
            parts.append(f'<line x1="{left}" x2="{width - right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e4e4e4"/>'
                         f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{tick}</text>')
        # Streams of one step share a dot.
        dots = sorted({(round(x(t)), round(y(gap))) for t, gap in side["gaps"] if t <= t_end})
        parts += [f'<circle cx="{at}" cy="{high}" r="1.6" fill="#1f6feb"/>' for at, high in dots]
        for second in range(0, int(t_end) + 1, max(1, int(t_end / 10))):
            parts.append(f'<text x="{x(second):.1f}" y="{base + 16}" text-anchor="middle">{second}</text>')
        parts.append(f'<text x="14" y="{base - strip / 2}" text-anchor="middle" transform="rotate(-90 14 {base - strip / 2})">ms since the last token</text>')
    parts += [f'<text x="{(left + width) / 2}" y="{height - 8}" text-anchor="middle">seconds</text>', "</svg>"]
    return "\n".join(parts) + "\n"


def ceilings(args):
    """GB/s and TFLOP/s of all cores together, by name."""
    report = run_json([args.binary, "bench", "machine", "--json"])
    return {name: figure["together"] for name, figure in report["ceilings"].items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=6000)
    parser.add_argument("--answer", type=int, default=2000, help="tokens that a stream may say: more than it gets to")
    parser.add_argument("--idle", type=float, default=8, help="seconds")
    parser.add_argument("--carrier", choices=["auto", "tcp"], default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--svg")
    args = parser.parse_args()

    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("two cores are needed, one for each worker")
    earlier = json.loads(Path(args.json).read_text()) if args.json and Path(args.json).exists() else None
    runs = earlier["runs"] if earlier else {}
    pages = -(-args.prompt // 32) + args.streams * -(-(40 + args.answer) // 32) + 8
    ctx = max(args.prompt, args.answer) + 100
    common = ["serve", args.model, "--port", 0, "--ctx", ctx, "--kv-pages", pages]
    rng, shown, before = random.Random(args.seed + len(next(iter(runs.values()), []))), {}, ceilings(args)
    with ExitStack() as stack:
        token = stack.enter_context(tempfile.NamedTemporaryFile("w", prefix="shoal-gap-token-"))
        token.write(secrets.token_hex(32))
        token.flush()
        role = lambda name, core, *flags: stack.enter_context(
            Process(args, [*common, "--role", name, "--token-file", token.name, "--threads", 1, *flags], {core}))
        prefill = role("prefill", cores[0], "--bootstrap-port", 0)
        decode = role("decode", cores[1], "--kv-carrier", args.carrier)
        front = stack.enter_context(Process(args, ["pair", "--prefill", prefill.url, "--decode", decode.url, "--bootstrap-port",
                                                   prefill.info()["bootstrap_port"], "--port", 0], set(cores)))
        both = stack.enter_context(Process(args, [*common, "--threads", 2], set(cores[:2])))
        sides = [Side("prefill and decode apart", front.address, [prefill, decode]), Side("one worker, both threads", both.address, [both])]
        # Cost models learn while they serve.
        for side in sides:
            for _ in range(2):
                side.ask([rng.randrange(300, VOCABULARY) for _ in range(500)], 8, lambda at: None)
        for turn in range(args.turns):
            for side in sides if turn % 2 == 0 else sides[::-1]:
                figures, shown[side.name] = side.turn(args, rng)
                runs.setdefault(side.name, []).append(figures)
                print(f"{side.name}: p50/p99/max {1000 * figures['idle']['p50_s']:.0f}/{1000 * figures['idle']['p99_s']:.0f}/{1000 * figures['idle']['max_s']:.0f} ms idle, "
                      f"{1000 * figures['beside']['p50_s']:.0f}/{1000 * figures['beside']['p99_s']:.0f}/{1000 * figures['beside']['max_s']:.0f} ms beside the prompt, "
                      f"{figures['ratio']:.2f} times; its first token after {figures['ttft_s']:.1f} s; cores busy {' '.join(f'{share:.2f}' for share in figures['cores'])}", flush=True)
    after = ceilings(args)
    median = {name: {"ratio": spread([run["ratio"] for run in turns]), "ttft_s": spread([run["ttft_s"] for run in turns]),
                     **{f"{when}_{figure}": spread([run[when][figure] for run in turns]) for when in ("idle", "beside") for figure in ("p50_s", "p99_s", "max_s")}}
              for name, turns in runs.items()}
    for name, each in median.items():
        print(f"{name}: p99 {1000 * each['idle_p99_s']['median']:.0f} ms idle, {1000 * each['beside_p99_s']['median']:.0f} ms beside the prompt, "
              f"{each['ratio']['median']:.2f} times [{each['ratio']['min']:.2f}, {each['ratio']['max']:.2f}]; medians of {len(runs[name])} turns")
    print(f"drift of the ceilings during the run: {100 * drift(before, after):.1f} %")
    if args.json:
        Path(args.json).write_text(json.dumps({"bench": "handover_gap", "machine": {"cores": len(cores)},
                                               "ceilings": {"before": before, "after": after, "drift": drift(before, after)},
                                               "params": {key: str(value) for key, value in vars(args).items()},
                                               "runs": runs, "median": median, "peer": None}, indent=2) + "\n")
    if args.svg:
        Path(args.svg).write_text(svg(shown, f"{args.streams} streams and a prompt of {args.prompt:,} tokens, {Path(args.model).stem}"))
    return 0 if median["prefill and decode apart"]["ratio"]["median"] <= 1.2 else 1


if __name__ == "__main__":
    sys.exit(main())
