#!/usr/bin/env python3
"""What each way to cut a model costs and buys on one machine: TP 2, PP 2 and two replicas at equal cores, under Poisson load.

    bench/parallelism.py MODEL.gguf [--rates 0.5,1,2,4] [--seconds 10] [--prompt 128] [--generate 32] [--lengths 32,256,1024]
                         [--json OUT.json] [--svg docs/parallelism.svg]

Every arrangement has two compute threads: one on each of two ranks, or one in each of two servers that get requests in turn. `single` is
one server with one thread, for what a request costs alone. Prompts are random tokens, answers end after --generate tokens.

First each arrangement answers single requests of several prompt lengths, one after the other; then it takes --seconds of arrivals at
every rate. Reported: queue time and execution time to first token (means, from /metrics), the user's time to first token and the time
between tokens (medians, p90), tokens a second, and the memory of each process.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from measured import resident

ROOT = Path(__file__).resolve().parent.parent
ARRANGEMENTS = {
    "tp2": [["--tp", "2", "--threads", "1"]],
    "pp2": [["--pp", "2", "--threads", "1"]],
    "replicas": [["--threads", "1"], ["--threads", "1"]],
    "single": [["--threads", "1"]],
}
COLOURS = {"tp2": "#1b6ac9", "pp2": "#c9531b", "replicas": "#2e8b57", "single": "#777777"}


class Server:
    def __init__(self, args, flags):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen([str(args.binary), "serve", args.model, "--port", "0", *flags, *args.serve_flags],
                                        stdout=self.log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while True:
            found = re.search(r"listening on (\S+)", Path(self.log.name).read_text())
            if found:
                self.url = found.group(1)
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                sys.exit(f"the server did not start:\n{Path(self.log.name).read_text()[-2000:]}")
            time.sleep(0.05)

    def memory(self):
        """Bytes of each process of the server, the head first."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        children = [pid for task in tasks for pid in task.read_text().split()]
        return [sum(resident(pid).values()) for pid in [self.process.pid, *map(int, children)]]

    def means(self):
        """Sum and count of the histograms that part the time to the first token."""
        text = urllib.request.urlopen(self.url + "/metrics", timeout=10).read().decode()
        return {name: [float(re.search(rf"^shoal_request_{name}_time_seconds_{part}(?:{{[^}}]*}})? (\S+)", text, re.M).group(1))
                       for part in ("sum", "count")] for name in ("queue", "prefill")}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def load(args, servers, prompt, rate, how_many):
    before = [server.means() for server in servers]
    report = json.loads(subprocess.run(
        [str(args.binary), "bench", "serve", "--url", ",".join(server.url for server in servers), "--rate", str(rate), *how_many,
         "--prompt-tokens", str(prompt), "--max-tokens", str(args.generate), "--vocabulary", "4000", "--json"],
        check=True, capture_output=True, text=True).stdout)
    after = [server.means() for server in servers]
    figures = report["median"]

    def mean_ms(name):
        total, count = (sum(a[name][i] - b[name][i] for a, b in zip(after, before)) for i in (0, 1))
        return 1e3 * total / count if count else None

    return {"rate": rate, "prompt": prompt, "queue_ms": mean_ms("queue"), "execution_ttft_ms": mean_ms("prefill"),
            "ttft_ms": figures["ttft_ms"], "tbt_ms": figures["token_gap_ms"], "e2e_ms": figures["e2e_ms"],
            "output_tokens_per_s": figures["output_tokens_per_s"], "requests_per_s": figures["requests_per_s"]}


def measure(args, name):
    servers = [Server(args, flags) for flags in ARRANGEMENTS[name]]
    try:
        load(args, servers, 16, 1000, ["--requests", "4"])  # warms pages and scratch
        # So seldom that no request meets another.
        alone = [load(args, servers, length, 0.5 if length > 256 else 2, ["--requests", str(2 if length > 256 else 4)])
                 for length in args.lengths]
        loaded = [load(args, servers, args.prompt, rate, ["--duration", str(args.seconds)]) for rate in args.rates] if name != "single" else []
        return {"arrangement": name, "memory_bytes": [bytes_ for server in servers for bytes_ in server.memory()], "alone": alone, "loaded": loaded}
    finally:
        for server in servers:
            server.stop()


def panel(left, title, unit, xs, lines, log_x=False):
    """One plot of 300 x 220: a line for each arrangement."""
    top, width, height = 40, 270, 190
    most = max(y for _, ys in lines for y in ys if y is not None) * 1.1 or 1
    place = (lambda x: xs.index(x) / max(len(xs) - 1, 1))
    at = lambda x, y: (left + 40 + place(x) * (width - 50), top + height - y / most * height)
    parts = [f'<text x="{left + 40}" y="24" font-size="13">{title}, {unit}</text>']
    for i in range(5):
        value = most * i / 4
        y = top + height - i / 4 * height
        parts.append(f'<line x1="{left + 40}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e4"/>'
                     f'<text x="{left + 35}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    for x in xs:
        parts.append(f'<text x="{at(x, 0)[0]:.1f}" y="{top + height + 16}" text-anchor="middle">{x:g}</text>')
    for name, ys in lines:
        points = " ".join(f"{at(x, y)[0]:.1f},{at(x, y)[1]:.1f}" for x, y in zip(xs, ys) if y is not None)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
    return parts


def svg(runs, args, title):
    loaded = [run for run in runs if run["loaded"]]
    rates = [row["rate"] for row in loaded[0]["loaded"]]
    lengths = [row["prompt"] for row in runs[0]["alone"]]
    of = lambda rows, key: [row[key]["p50"] if isinstance(row[key], dict) else row[key] for row in rows]
    panels = [
        ("TTFT alone by prompt", "ms", lengths, [(run["arrangement"], of(run["alone"], "ttft_ms")) for run in runs]),
        ("TTFT by requests/s", "ms", rates, [(run["arrangement"], of(run["loaded"], "ttft_ms")) for run in loaded]),
        ("TBT by requests/s", "ms", rates, [(run["arrangement"], of(run["loaded"], "tbt_ms")) for run in loaded]),
        ("Throughput by requests/s", "tokens/s", rates, [(run["arrangement"], of(run["loaded"], "output_tokens_per_s")) for run in loaded]),
    ]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{300 * len(panels) + 20}" height="290" font-family="sans-serif" font-size="11">',
             f'<rect width="{300 * len(panels) + 20}" height="290" fill="white"/>']
    for i, (name, unit, xs, lines) in enumerate(panels):
        parts += panel(300 * i, name, unit, xs, lines)
    for i, run in enumerate(runs):
        parts.append(f'<rect x="{40 + 90 * i}" y="264" width="12" height="4" fill="{COLOURS[run["arrangement"]]}"/>'
                     f'<text x="{56 + 90 * i}" y="270">{run["arrangement"]}</text>')
    return "\n".join([*parts, f'<text x="{60 + 90 * len(runs)}" y="270" fill="#555">{title}</text>', "</svg>"]) + "\n"


def numbers(text):
    return [float(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--arrangements", default="tp2,pp2,replicas,single")
    parser.add_argument("--rates", type=numbers, default=[0.5, 1, 2, 4], help="requests a second")
    parser.add_argument("--seconds", type=float, default=10, help="of arrivals at each rate")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of each prompt under load")
    parser.add_argument("--generate", type=int, default=32, help="tokens of each answer")
    parser.add_argument("--lengths", type=lambda text: [int(part) for part in text.split(",")], default=[32, 256, 1024],
                        help="tokens of the prompts that are answered alone")
    parser.add_argument("--serve-flags", type=str.split, default=[], help="further flags of every server, in one word")
    parser.add_argument("--json")
    parser.add_argument("--svg")
    args = parser.parse_args()
    runs = []
    for name in args.arrangements.split(","):
        runs.append(measure(args, name))
        run = runs[-1]
        print(f"{name}: memory {', '.join(f'{size / 2**20:.0f}' for size in run['memory_bytes'])} MiB")
        for what in ("alone", "loaded"):
            for row in run[what]:
                print(f"  {what:6} {row['prompt']:5} tokens, {row['rate']:5.2f}/s: queue {row['queue_ms'] or 0:7.1f} ms, execution TTFT "
                      f"{row['execution_ttft_ms'] or 0:7.1f}, TTFT {row['ttft_ms']['p50']:7.1f} (p90 {row['ttft_ms']['p90']:7.1f}), TBT "
                      f"{row['tbt_ms']['p50']:6.2f} (p90 {row['tbt_ms']['p90']:6.2f}), {row['output_tokens_per_s']:6.1f} tokens/s", flush=True)
    title = f"{Path(args.model).stem}; alone: {args.generate} tokens each; loaded: prompts of {args.prompt}, two compute threads in all"
    if args.svg:
        Path(args.svg).write_text(svg(runs, args, title))
    if args.json:
        machine = json.loads(subprocess.run([str(args.binary), "bench", "machine", "--json"], check=True, capture_output=True, text=True).stdout)
        Path(args.json).write_text(json.dumps({
            "bench": "parallelism", "machine": machine["machine"], "ceilings": machine["ceilings"],
            "params": {"model": Path(args.model).name, "seconds": args.seconds, "prompt": args.prompt, "generate": args.generate,
                       "cores": len(os.sched_getaffinity(0))},
            "runs": runs, "median": None, "peer": None}, indent=2) + "\n")


if __name__ == "__main__":
    main()
