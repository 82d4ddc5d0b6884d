#!/usr/bin/env python3
"""Writes the seeds of fuzz_messages into tests/fuzz/corpus/messages: one message of each kind (docs/wire.md), and some that just fail.

Usage: make_corpus_messages.py [FOLDER]. The same files every time.
"""
import os
import struct
import sys

KINDS = ("room", "accept", "refuse", "fetch", "write", "offer", "commit", "word", "sentence", "join", "assign", "loaded",
         "start", "failed", "traffic", "progress", "epoch", "plan", "result")


def u8(*values): return struct.pack(f"<{len(values)}B", *values)
def i32(*values): return struct.pack(f"<{len(values)}i", *values)
def u32(*values): return struct.pack(f"<{len(values)}I", *values)
def u64(*values): return struct.pack(f"<{len(values)}Q", *values)
def f32(*values): return struct.pack(f"<{len(values)}f", *values)
def text(s): return u32(len(s)) + s.encode()
def listed(items): return u32(len(items)) + b"".join(items)
def strings(*items): return listed([text(s) for s in items])


def group_parts(*parts): return listed([i32(*part) for part in parts])
def pages(*items): return listed([i32(group, logical, slot) + u32(generation) for group, logical, slot, generation in items])


def room(strict=1, checksum=1, build="b"):
    terms = text(build) + text("f") + strings("v1") + u8(strict) + text("avx2") + u8(checksum)
    return terms + u64(7) + i32(150) + u64(11, 12)


def accept(*ranks):
    return listed([text(endpoint) + i32(coordinate) + listed([i32(*part) for part in parts]) for endpoint, coordinate, parts in ranks])


def fetch(parts, asked, host="", checksum=0):
    return u64(7, 9) + text(host) + u8(checksum) + group_parts(*parts) + pages(*asked)


def word(kind, checksum=0, sources=(), asked=()):
    named = listed([text(endpoint) + group_parts(*parts) for endpoint, parts in sources])
    return u8(kind) + u64(7) + text("why") + u8(checksum) + i32(150) + u8(1) + named + pages(*asked)


def plan():
    sampling = f32(1) + i32(40) + f32(1, 0, 1, 0, 0) + listed([i32(5) + f32(-1)]) + u64(3) + u32(0) + i32(0) + listed([i32(2)]) + i32(-1)
    opened = i32(0) + sampling + listed([i32(1), i32(2)]) + listed([]) + struct.pack("<q", -1) + i32(0)
    item = i32(0, 0) + listed([i32(1), i32(2)]) + u8(1) + i32(-1) + u8(0)
    return (u64(1, 1) + listed([i32(3)]) + listed([opened]) + listed([i32(0, 0, 0, 0, 4) + u32(1)]) + listed([i32(0, 0, 1)])
            + listed([listed([item])]) + u8(0))


WHOLE = [(0, 3, 0, 4), (0, 2, 0, 2)]
TP2 = [[(0, 3, 0, 2), (0, 2, 0, 1)], [(0, 3, 2, 2), (0, 2, 1, 1)]]
STAGES = [[(0, 1, 0, 4), (0, 2, 0, 2)], [(1, 2, 0, 4), (0, 0, 0, 0)]]
HELD = [(0, 1, 2, 0, 2), (1, 0, 1, 2, 1)]
ASKED = [(0, 0, 3, 1), (0, 4, 4, 1), (1, 2, 0, 7)]

SEEDS = {
    "room": ("room", room()),
    "room_misfit": ("room", room(build="other")),
    "room_checksum": ("room", room(checksum=3)),
    "room_flag": ("room", room(strict=2)),
    "accept": ("accept", accept((":100", 0, WHOLE))),
    "accept_tp2": ("accept", accept((":100", 0, TP2[0]), ("h:1", 0, TP2[1]))),
    "accept_stages": ("accept", accept((":100", 0, STAGES[0]), (":101", 0, STAGES[1]))),
    "accept_coordinates": ("accept", accept((":100", 0, WHOLE), (":101", 3, WHOLE))),
    "accept_missing_head": ("accept", accept((":100", 0, [(0, 3, 1, 3), (0, 2, 0, 2)]))),
    "accept_nobody": ("accept", accept()),
    "accept_huge": ("accept", accept((":100", 0, [(2**31 - 1, 2**31 - 1, 0, 4), (0, 2, 0, 2)]))),
    "refuse": ("refuse", text("no") + u8(1)),
    "fetch": ("fetch", fetch(HELD, ASKED)),
    "fetch_host": ("fetch", fetch(HELD, ASKED, "boot:1", 2)),
    "fetch_elsewhere": ("fetch", fetch([(0, 2**31 - 1, 2**31 - 1, 2**31 - 1, 2**31 - 1)], ASKED)),
    "fetch_behind_window": ("fetch", fetch(HELD, [(1, 1, 0, 1)])),
    "fetch_twice": ("fetch", fetch(HELD, [(0, 1, 3, 1), (0, 1, 4, 1)])),
    "write": ("write", u64(9) + i32(0, 1, 0, 2, 0, 1) + u8(1)),
    "offer": ("offer", i32(1) + u64(2, 3) + listed([u64(4096) + i32(6, 1, 2, 0, 2), u64(8192) + i32(4, 0, 1, 2, 1)])),
    "commit": ("commit", u64(9) + i32(32) + u8(0) + i32(5) + f32(-0.5) + listed([i32(5) + f32(-0.5), i32(6) + f32(float("nan"))])),
    "land": ("word", word(2, 2, [("h:1", HELD)], ASKED)),
    "unknown_word": ("word", word(10)),
    "sentence": ("sentence", text("it ends")),
    "join": ("join", text("b") + text("h:1") + i32(-1, 2, 77)),
    "assign": ("assign", i32(1, 2, 1, 1, 1, 1) + u64(3) + text("m.gguf") + text("bf16") + text("auto") + text("") + text("/c") + u8(1)
               + i32(1, 64) + u8(1) + listed([i32(2), i32(2)]) + listed([]) + text("mix") + text("f32") + u8(1) + text("0.0.0.0")
               + text("both") + text("") + struct.pack("<H", 0)),
    "loaded": ("loaded", u64(3) + text("f") + strings("v1") + text("avx2") + u64(1, 2, 3) + i32(1) + text(":5") + listed([i32(0, 2, 0, 2)])),
    "start": ("start", struct.pack("<q", 64) + i32(1) + text("m") + u64(1 << 20) + strings("a", "b") + strings(":1", ":2") + u64(1)),
    "failed": ("failed", u64(3) + text("why")),
    "traffic": ("traffic", listed([u8(1) + u64(1, 2, 3, 4, 5, 6)])),
    "progress": ("progress", u32(500)),
    "epoch": ("epoch", u64(3)),
    "plan": ("plan", plan()),
    "result": ("result", u64(1) + text("") + listed([i32(0, 5) + f32(0) + listed([i32(5) + f32(0)])])
               + listed([i32(0, 1, 5) + f32(0) + listed([])]) + listed([struct.pack("<d", 0.1)])),
}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "corpus", "messages")
    os.makedirs(folder, exist_ok=True)
    files = {name: u8(KINDS.index(kind)) + body for name, (kind, body) in SEEDS.items()}
    files["count_without_bytes"] = u8(KINDS.index("accept")) + u32(2**32 - 1)
    files["left_over"] = files["refuse"] + b"\0"
    files["cut"] = files["plan"][:-3]
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)


main()
