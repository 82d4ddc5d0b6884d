#!/usr/bin/env python3
"""From the start of a server to its first token, beside llama.cpp's server on the same file, in turns; and the memory both then hold.

    bench/start.py MODEL.gguf [--cold] [--packed-cache DIR] [--rounds 5] [--context 4096] [--json OUT.json]

A turn starts the program, asks for one token of a short prompt as soon as the port accepts requests, and reads what is resident then:
anonymous memory, and pages of mapped files. Both run with the same threads and room for as many tokens. By default the file is in the page cache;
--cold drops it before each turn. --packed-cache keeps our packed weights in a folder, which a turn before the first fills. The peer is built by bench/build_llamacpp.
"""
import argparse
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from measured import free_port, llamacpp, resident, spread

ROOT = Path(__file__).resolve().parent.parent
DEADLINE = 120


def prepare(path, cold):
    with open(path, "rb", buffering=0) as file:
        if cold:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return
        buffer = bytearray(8 << 20)
        while file.readinto(buffer):
            pass


def prepare_all(args):
    prepare(args.model, args.cold)
    for file in Path(args.packed_cache).iterdir() if args.packed_cache else ():
        prepare(file, args.cold)


def first_token(command, port):
    begin = time.monotonic()
    process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    body = json.dumps({"prompt": "The first day of spring", "max_tokens": 1, "temperature": 0}).encode()
    try:
        while True:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                    answer.read()
                break
            except (urllib.error.URLError, ConnectionError):  # not listening yet, or 503 while loading
                if process.poll() is not None or time.monotonic() - begin > DEADLINE:
                    sys.exit(f"{command[0]} gave no token")
                time.sleep(0.005)
        return {"seconds": time.monotonic() - begin, **resident(process.pid)}
    finally:
        process.terminate()
        process.wait(30)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--packed-cache", metavar="DIR")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()
    peer = llamacpp() / "llama-server"
    ours = [args.binary, "serve", args.model, "--kv-pages", args.context // 32]
    if args.packed_cache:
        ours += ["--packed-cache", args.packed_cache]
        Path(args.packed_cache).mkdir(parents=True, exist_ok=True)
        port = free_port()
        first = first_token([*ours, "--host", "127.0.0.1", "--port", port, "--threads", args.threads], port)
        print(f"with an empty folder: {first['seconds']:.2f} s", file=sys.stderr)
    runs = []
    for _ in range(args.rounds):
        turn = {}
        for who, command in (("shoal", ours),
                             ("llama.cpp", [peer, "-m", args.model, "-c", args.context, "-np", 1])):
            port = free_port()
            prepare_all(args)
            turn[who] = first_token([*command, "--host", "127.0.0.1", "--port", port, "--threads", args.threads], port)
        turn["ratio"] = turn["shoal"]["seconds"] / turn["llama.cpp"]["seconds"]
        runs.append(turn)
        print(", ".join(f"{who} {turn[who]['seconds']:.2f} s, {turn[who]['rss_anon_bytes'] / 1e6:.0f} MB anonymous, "
                        f"{turn[who]['rss_file_bytes'] / 1e6:.0f} MB mapped" for who in ("shoal", "llama.cpp")), file=sys.stderr)
    median = {who: {key: spread([run[who][key] for run in runs]) for key in runs[0][who]} for who in ("shoal", "llama.cpp")}
    median["ratio"] = spread([run["ratio"] for run in runs])
    print(f"first token: shoal {median['shoal']['seconds']['median']:.2f} s, llama.cpp {median['llama.cpp']['seconds']['median']:.2f} s "
          f"({median['ratio']['median']:.2f}x the time)")
    if args.json:
        Path(args.json).write_text(json.dumps({
            "bench": "start", "machine": {"usable_cores": len(os.sched_getaffinity(0))},
            "params": {"model": Path(args.model).name, "bytes": os.path.getsize(args.model), "context": args.context, "threads": args.threads,
                       "cold": args.cold, "packed_cache": bool(args.packed_cache), "rounds": args.rounds},
            "runs": runs, "median": median, "peer": "llama-server of llama-cpp-python 0.3.36, native"}, indent=2) + "\n")


if __name__ == "__main__":
    main()
