#!/usr/bin/env python3
"""Loading a large checkpoint: its time beside a direct read of the same files, and the memory it takes.

usage: test_loading.py [SHAPE [WEIGHTS]]     by default a small shape; llama-1b is 2.5 GB, llama-8b 16 GB
       SHOAL_LOADING_FOLDER chooses where the checkpoint is written and deleted again (default: the temporary folder)
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import shoal_process as shoal

LARGEST_MEMORY = 1.10  # of the packed weights
# Program, tokenizer, stacks and the buffers of one pass; matters for the small shape alone.
OTHER_MEMORY = 48 << 20
SMALLEST_SHARE = 0.6
# A program start is 30 ms; below this size it would decide.
TIMED_FROM = 1 << 30


def read_all(folder):
    """Seconds to read every file once, in pieces of 8 MiB."""
    begin = time.monotonic()
    buffer = bytearray(8 << 20)
    for path in sorted(folder.iterdir()):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.monotonic() - begin


def anonymous_bytes(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def load(folder, weights):
    """Seconds to load and end, and the largest anonymous memory seen."""
    command = [shoal.PROGRAM, "score", str(folder), "--jsonl", *(["--weights", weights] if weights else [])]
    begin = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, anonymous_bytes(process.pid))
        time.sleep(0.01)
    assert process.returncode == 0, f"{command} ended with {process.returncode}"
    return time.monotonic() - begin, peak


def packed_bytes(folder, weights):
    """What the packed weights take: all matrices but an embedding table that is only looked up in."""
    facts = json.loads(shoal.run(["inspect", folder, "--json"]))
    parameters = facts["total"]["parameters"]
    if not facts["model"]["tied_embeddings"]:
        parameters -= facts["parts"]["embedding"]["parameters"]
    return parameters * {"": 2, "bf16": 2, "q8_0": 34 / 32, "q4_0": 18 / 32}[weights]


def main():
    shape = sys.argv[1] if len(sys.argv) > 1 else "llama-tiny-8k"
    weights = sys.argv[2] if len(sys.argv) > 2 else ""
    top = pathlib.Path(tempfile.mkdtemp(prefix="shoal_loading_", dir=os.environ.get("SHOAL_LOADING_FOLDER")))
    try:
        folder = top / "model"
        shoal.run(["synth", shape, "--type", "bf16", folder])
        size = sum(p.stat().st_size for p in folder.iterdir())
        read_all(folder)  # into the page cache, as far as it goes
        rounds = [(read_all(folder), *load(folder, weights)) for _ in range(3)]
        read = sorted(r[0] for r in rounds)[1]
        loading = sorted(r[1] for r in rounds)[1]
        peak = max(r[2] for r in rounds)
        packed = packed_bytes(folder, weights)
        share = read / loading
        print(f"{shape} {weights or 'bf16'}: {size / 1e9:.2f} GB read in {read:.2f} s, loaded in {loading:.2f} s "
              f"({share:.0%} of a read's speed), RssAnon {peak / 1e9:.3f} GB, packed {packed / 1e9:.3f} GB "
              f"({peak / packed:.2f}x)")
        assert peak <= LARGEST_MEMORY * packed + OTHER_MEMORY, "too much memory"
        if size >= TIMED_FROM and "SHOAL_LOADING_TIMED" in os.environ:
            assert share >= SMALLEST_SHARE, f"loaded at {share:.0%} of a direct read"
        print("passed")
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
