#!/usr/bin/env python3
"""Does a long prompt freeze the streams beside it? Eight streams run; then a 4,000-token prompt arrives.

Starts `shoal serve`, measures the time between two tokens of every stream, prints p50, p99 and the largest gap against the
bound (--max-token-gap), and draws them.

    bench/token_gap.py MODEL.gguf [--json OUT.json] [--svg docs/token-gap.svg]
"""
import argparse
import http.client
import json
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ANIMALS = ["fox", "owl", "bear", "heron", "otter", "lynx", "crow", "hare"]
SENTENCE = "Number {}: the river ran past the mill, and the miller counted the boats that came down from the hills. "
ROOT = Path(__file__).resolve().parent.parent


def start_server(binary, model, bound_ms):
    log = tempfile.NamedTemporaryFile("w+", prefix="shoal-gap-")
    process = subprocess.Popen([binary, "serve", model, "--port", "0", "--max-token-gap", str(bound_ms)], stdout=log, stderr=log)
    for _ in range(1200):
        if found := re.search(r"^listening on http://([\d.]+):(\d+)", Path(log.name).read_text(), re.M):
            return process, found[1], int(found[2])
        if process.poll() is not None:
            break
        time.sleep(0.1)
    sys.exit("shoal serve did not start:\n" + Path(log.name).read_text())


def stream(address, body, on_token):
    """Runs one streamed completion; on_token(time) at every event with text or tokens. Returns the usage."""
    connection = http.client.HTTPConnection(*address, timeout=300)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"the server answered {response.status}: {response.read().decode()}")
    usage = None
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        usage = event.get("usage") or usage
        if event["choices"]:
            on_token(time.monotonic())
    return usage


def token_ids(address, text):
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.request("POST", "/tokenize", json.dumps({"prompt": text}), {"Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())["tokens"]


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def svg(gaps, bound, arrival, done, title):
    """Every gap as a dot over time, the bound as a line, the long prompt's stay as a band."""
    width, height, left, bottom, top, right = 860, 360, 60, 44, 34, 16
    t_end = max(t for t, _ in gaps)
    y_max = 1.6 * bound
    x = lambda t: left + (width - left - right) * t / t_end
    y = lambda gap: height - bottom - (height - bottom - top) * min(gap, y_max) / y_max
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             f'<text x="{left}" y="20" font-size="14">{title}</text>',
             f'<rect x="{x(arrival):.1f}" y="{top}" width="{x(done) - x(arrival):.1f}" height="{height - bottom - top}" fill="#fde8c8"/>',
             f'<text x="{x(arrival) + 4:.1f}" y="{top + 14}" fill="#8a5a00">4,000-token prompt being computed</text>']
    for tick in range(0, int(y_max * 1000) + 1, 50):
        at = y(tick / 1000)
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e4e4e4"/>'
                     f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{tick}</text>')
    for second in range(0, int(t_end) + 1, max(1, int(t_end / 10))):
        parts.append(f'<text x="{x(second):.1f}" y="{height - bottom + 16}" text-anchor="middle">{second}</text>')
    parts += [f'<circle cx="{x(t):.1f}" cy="{y(gap):.1f}" r="1.6" fill="#1f6feb" fill-opacity="0.5"/>' for t, gap in gaps]
    parts += [f'<line x1="{left}" x2="{width - right}" y1="{y(bound):.1f}" y2="{y(bound):.1f}" stroke="#c62828" stroke-width="1.5"/>',
              f'<text x="{width - right}" y="{y(bound) - 5:.1f}" text-anchor="end" fill="#c62828">bound {bound * 1000:.0f} ms</text>',
              f'<text x="{(left + width) / 2}" y="{height - 8}" text-anchor="middle">seconds</text>',
              f'<text x="14" y="{height / 2}" text-anchor="middle" transform="rotate(-90 14 {height / 2})">milliseconds since the stream\'s last token</text>',
              "</svg>"]
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=4000, help="tokens of the long prompt")
    parser.add_argument("--bound", type=float, default=200, help="milliseconds")
    parser.add_argument("--json")
    parser.add_argument("--svg")
    args = parser.parse_args()

    process, host, port = start_server(args.binary, args.model, args.bound)
    address, bound = (host, port), args.bound / 1000
    gaps, start, stop, lock = [], time.monotonic(), threading.Event(), threading.Lock()

    def talk(index):
        round_number = 0
        while not stop.is_set():
            last = None

            def on_token(at):
                nonlocal last
                if last is not None:
                    with lock:
                        gaps.append((at - start, at - last))
                last = at

            # Plain words, so that every token completes a character and is an event of its own.
            stream(address, {"prompt": f"Story {round_number} of the {ANIMALS[index % len(ANIMALS)]}: once upon a time", "max_tokens": 400,
                             "ignore_eos": True, "temperature": 0.7, "top_p": 0.9, "seed": index, "stream": True}, on_token)
            round_number += 1

    # The cost model learns while it serves: one long prompt before the measurement, as on any server that has run a minute.
    long_prompt = token_ids(address, "".join(SENTENCE.format(i) for i in range(args.prompt // 10)))[:args.prompt]
    stream(address, {"prompt": long_prompt[-1000:], "max_tokens": 4, "stream": True}, lambda at: None)
    threads = [threading.Thread(target=talk, args=(i,)) for i in range(args.streams)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    arrival = time.monotonic()
    first = []
    stream(address, {"prompt": long_prompt, "max_tokens": 4, "ignore_eos": True, "stream": True}, first.append)
    done = first[0]
    time.sleep(2)
    stop.set()
    for thread in threads:
        thread.join()
    process.terminate()
    process.wait(30)

    during = [gap for t, gap in gaps if arrival - start <= t <= done - start]
    result = {"p50": percentile(during, 0.5), "p99": percentile(during, 0.99), "max": max(during), "gaps": len(during), "ttft": done - arrival}
    report = {"bench": "token_gap", "machine": {"cpu": platform.processor() or platform.machine()}, "ceilings": {},
              "params": {"streams": args.streams, "prompt": args.prompt, "bound_s": bound, "model": Path(args.model).name},
              "runs": [result], "median": result, "peer": None}
    print(f"gaps of {args.streams} streams while a {args.prompt}-token prompt is computed ({result['ttft']:.1f} s): "
          f"p50 {result['p50'] * 1000:.0f} ms, p99 {result['p99'] * 1000:.0f} ms, largest {result['max'] * 1000:.0f} ms; bound {args.bound:.0f} ms")
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=2) + "\n")
    if args.svg:
        Path(args.svg).write_text(svg([(t, g) for t, g in gaps if t <= done - start + 2], bound, arrival - start, done - start,
                                      f"{args.streams} streams and a {args.prompt}-token prompt, {Path(args.model).stem}"))
    return 0 if result["p99"] <= bound and result["max"] <= 1.5 * bound else 1


if __name__ == "__main__":
    sys.exit(main())
