#!/usr/bin/env python3
"""Loading a checkpoint beside direct reads of the same files, in turns, all from the disk.

    bench/load.py FOLDER [--weights q8_0] [--rounds 3] [--json OUT.json]

`shoal synth qwen3-4b FOLDER` writes 8 GB in bf16. Before each turn the files are dropped from the page cache. The reads go around it
(O_DIRECT, 8 MiB at a time): `read` into one buffer again and again, the least that any loader takes; `keep` into memory as large as
the packed weights, the least that one takes which holds weights afterwards. A turn of the program is its whole life: start, load, end.

A hypervisor may take free memory back and give it anew when it is touched, at 0.5 to 2 GB/s, which no loader can change. So memory as
large as the packed weights is touched and freed just before each turn that needs it; `touch` is how long that took, with all
threads. --untouched leaves it out.
"""
import argparse
import ctypes
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from measured import resident, spread

ROOT = Path(__file__).resolve().parent.parent
PIECE = 8 << 20
MADV_HUGEPAGE = 14


def drop(files):
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def fresh_memory(size):
    memory = mmap.mmap(-1, size + PIECE)
    memory.madvise(MADV_HUGEPAGE)
    return memory


def direct_read(files, memory, size):
    """Seconds to read all files; into the first PIECE of memory, or with size along all of it."""
    view = memoryview(memory)
    begin = time.monotonic()
    at = 0
    for path in files:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        while (n := os.readv(fd, [view[at:at + PIECE]])) > 0:
            if size:
                at = at + PIECE if at + 2 * PIECE <= size else 0
            if n % 4096:
                break
        os.close(fd)
    return time.monotonic() - begin


def touch_and_free(size, threads):
    """Seconds to write into each page of fresh memory, with `threads` threads."""
    libc = ctypes.CDLL(None)
    memory = fresh_memory(size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    share = size // threads
    begin = time.monotonic()
    workers = [threading.Thread(target=libc.memset, args=(ctypes.c_void_p(address + i * share), 1, ctypes.c_size_t(share))) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.monotonic() - begin


def load(args):
    command = [args.binary, "score", args.folder, "--jsonl", "--threads", str(args.threads)]
    command += ["--weights", args.weights] if args.weights else []
    begin = time.monotonic()
    process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    peak = resident(process.pid)
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        peak = {name: max(peak[name], now) for name, now in resident(process.pid).items()}
        time.sleep(0.02)
    seconds = time.monotonic() - begin
    if status:
        sys.exit(f"{args.binary} ended with status {status}")
    return {"seconds": seconds, "user_s": usage.ru_utime, "system_s": usage.ru_stime, **peak}


def packed_bytes(args):
    facts = json.loads(subprocess.run([args.binary, "inspect", args.folder, "--json"], capture_output=True, check=True).stdout)
    parameters = facts["total"]["parameters"]
    if not facts["model"]["tied_embeddings"]:
        parameters -= facts["parts"]["embedding"]["parameters"]
    return int(parameters * {"": 2, "bf16": 2, "q8_0": 34 / 32, "q4_0": 18 / 32}[args.weights])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="a Hugging Face folder in bf16")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--weights", default="", choices=["", "bf16", "q8_0", "q4_0"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--untouched", action="store_true", help="leave free memory as it is")
    parser.add_argument("--json")
    args = parser.parse_args()
    files = sorted(Path(args.folder).glob("*.safetensors"))
    if not files:
        parser.error(f"{args.folder} holds no safetensors")
    size = sum(path.stat().st_size for path in files)
    packed = packed_bytes(args)

    runs = []
    for _ in range(args.rounds):
        drop(files)
        buffer = fresh_memory(PIECE)
        buffer[:PIECE] = bytes(PIECE)
        read = direct_read(files, buffer, 0)
        drop(files)
        touched = 0 if args.untouched else touch_and_free(packed, args.threads)
        ours = load(args)
        drop(files)
        if not args.untouched:
            touch_and_free(packed, args.threads)
        memory = fresh_memory(packed)
        keep = direct_read(files, memory, packed)
        memory.close()
        runs.append({"read_s": read, "keep_s": keep, "touch_s": touched, "load": ours, "share_of_read": read / ours["seconds"],
                     "share_of_keep": keep / ours["seconds"], "rss_anon_per_packed": ours["rss_anon_bytes"] / packed})
        print(f"read {read:.2f} s, keep {keep:.2f} s, touch {touched:.2f} s; load {ours['seconds']:.2f} s ({ours['user_s']:.1f} user, "
              f"{ours['system_s']:.1f} system): {read / ours['seconds']:.0%} of read, {keep / ours['seconds']:.0%} of keep; "
              f"RssAnon {ours['rss_anon_bytes'] / packed:.3f} x packed, mapped {ours['rss_file_bytes'] / 1e6:.0f} MB", file=sys.stderr)
    median = {key: spread([run[key] for run in runs]) for key in ("read_s", "keep_s", "touch_s", "share_of_read", "share_of_keep", "rss_anon_per_packed")}
    median["load_s"] = spread([run["load"]["seconds"] for run in runs])
    print(f"{size / 1e9:.2f} GB as {args.weights or 'bf16'}: loaded in {median['load_s']['median']:.2f} s, {median['share_of_read']['median']:.0%} of a direct "
          f"read's speed, {median['share_of_keep']['median']:.0%} of one's that keeps what it reads; RssAnon {median['rss_anon_per_packed']['max']:.3f} x packed weights")
    if args.json:
        Path(args.json).write_text(json.dumps({
            "bench": "load", "machine": {"usable_cores": len(os.sched_getaffinity(0)), "kernel": os.uname().release},
            "params": {"folder": Path(args.folder).name, "bytes": size, "packed_bytes": packed, "weights": args.weights or "bf16",
                       "threads": args.threads, "rounds": args.rounds, "cache": "dropped before each turn", "memory": "as it is" if args.untouched else "touched before each turn"},
            "runs": runs, "median": median, "peer": "O_DIRECT reads of 8 MiB"}, indent=2) + "\n")


if __name__ == "__main__":
    main()
