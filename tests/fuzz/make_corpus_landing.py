#!/usr/bin/env python3
"""Writes the seeds of fuzz_landing into tests/fuzz/corpus/landing: writes that fill the pages asked for, and some that must not.

Usage: make_corpus_landing.py [FOLDER]. The same files every time.
"""
import os
import struct
import sys

TABLE = 0x95A37BA4D92B5205  # of the pages that fuzz_landing.cc asks for
WRITE, VERSION, TILE = 32, 1, 128
# Of each layer: group, first head, heads, runs of pages that follow each other.
LAYERS = [(0, 1, 0, 2, [(1, 2), (4, 1)]), (0, 2, 0, 2, [(1, 2), (4, 1)]), (1, 0, 2, 1, [(3, 2)])]


def frame(body, kind=WRITE): return struct.pack("<IHH", len(body), kind, VERSION) + body


def write(group, layer, first_head, heads, first_page, pages, data=None, table=TABLE, checked=0, trailer=0):
    header = struct.pack("<Q6iB", table, group, layer, first_head, heads, first_page, pages, checked)
    if data is None:
        data = bytes(i % 251 for i in range(2 * TILE * heads * pages))
    return frame(header + data + struct.pack("<Q", trailer))


def slots(*numbers): return struct.pack(f"<{len(numbers)}i", *numbers)


def offer(first, second):
    pools = b"".join(struct.pack("<Q5i", 0, *pool) for pool in (first, second))
    return struct.pack("<iQQI", 1, 0, 0, 2) + pools


def everything(data=lambda pages: None):
    return b"".join(write(group, layer, head, heads, first, pages, data(pages))
                    for group, layer, head, heads, runs in LAYERS for first, pages in runs)


FITS = offer((8, 0, 4, 0, 4), (8, 0, 1, 0, 3))
SEEDS = {
    "all": everything(),
    "one_head_each": b"".join(write(0, layer, head, 1, 1, 2) for layer in (1, 2) for head in (0, 1)),
    "twice": write(0, 1, 0, 2, 1, 2) * 2,
    "overlapping": write(0, 1, 0, 2, 1, 2) + write(0, 1, 1, 1, 2, 1),
    "not_asked": write(0, 1, 0, 2, 2, 2),
    "other_table": write(0, 1, 0, 2, 1, 2, table=1),
    "other_layer": write(0, 0, 0, 2, 1, 2),
    "other_head": write(0, 1, 1, 2, 1, 2),
    "most_numbers": write(2**31 - 1, 2**31 - 1, 2**31 - 1, 2**31 - 1, 2**31 - 1, 2**31 - 1, b""),
    "checked": write(0, 1, 0, 2, 1, 2, checked=1, trailer=5),
    "too_long": write(0, 1, 0, 1, 1, 1, bytes(3 * TILE)),
    "beat_and_cut": frame(b"", 17) + everything()[:700],
    "other_frame": frame(b"", 34),
}
DIRECT = {
    "read_all": FITS + everything(lambda pages: slots(*range(pages))),
    "read_beyond_slots": FITS + write(0, 1, 0, 2, 1, 2, slots(7, 8)),
    "read_not_offered": offer((8, 0, 1, 0, 1), (8, 0, 1, 0, 3)) + write(0, 1, 0, 2, 1, 2, slots(0, 1)),
    "read_odd_offer": offer((2**31 - 1, -2**31, 2**31 - 1, -2**31, -1), (8, 0, 1, 0, 3)) + write(0, 1, 0, 2, 1, 2, slots(0, 1)),
    "read_apart": FITS + write(0, 1, 0, 2, 1, 2, slots(5, 2)),
}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "corpus", "landing")
    os.makedirs(folder, exist_ok=True)
    files = {name: b"\0" + frames for name, frames in SEEDS.items()}
    files |= {name: bytes([len(FITS)]) + data for name, data in DIRECT.items()}
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)


main()
