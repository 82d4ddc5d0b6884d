#!/usr/bin/env python3
"""Writes data/dequantise.bin: random blocks of every weight type and the values ggml's reference gives for them.

Needs the prebuilt llama.cpp inside the npm package node-llama-cpp at version 3.21.1:
    npm install --ignore-scripts -E node-llama-cpp@3.21.1
    LLAMACPP_DIR=node_modules/@node-llama-cpp/linux-x64/bins/linux-x64 ./make_dequantise_vectors.py
Only the standard library is used; the seed is fixed, so the file comes out the same every time.

File, little endian: "SHDQ", u32 count; per case u32 GGUF type id, u32 elements, u32 bytes, the bytes, the f32s.
"""
import ctypes
import os
import random
import struct
import sys

# name of ggml's function, type id, elements and bytes of a block, offsets of half-precision scales in a block
TYPES = [
    ("q4_0", 2, 32, 18, [0]),
    ("q4_1", 3, 32, 20, [0, 2]),
    ("q5_0", 6, 32, 22, [0]),
    ("q5_1", 7, 32, 24, [0, 2]),
    ("q8_0", 8, 32, 34, [0]),
    ("q2_K", 10, 256, 84, [80, 82]),
    ("q3_K", 11, 256, 110, [108]),
    ("q4_K", 12, 256, 144, [0, 2]),
    ("q5_K", 13, 256, 176, [0, 2]),
    ("q6_K", 14, 256, 210, [208]),
    ("iq4_nl", 20, 32, 18, [0]),
    ("iq4_xs", 23, 256, 136, [0]),
]
ELEMENTS = 2048  # 64 or 8 blocks a type: 12 x 8 KiB of values and the plain types beside them


def scale_bits(rng, index):
    """Mostly sane scales; among the first few zero, a subnormal half, the largest half and minus one step."""
    special = [0x0000, 0x0001, 0x83FF, 0x7BFF, 0x8001, 0xBC00]
    if index < len(special):
        return special[index]
    return struct.unpack("<H", struct.pack("<e", rng.uniform(-2, 2) * 10 ** rng.uniform(-4, 0)))[0]


def blocks(rng, count, size, scales):
    out = bytearray()
    for index in range(count):
        block = bytearray(rng.randbytes(size))
        for at in scales:
            block[at : at + 2] = struct.pack("<H", scale_bits(rng, index))
        out += block
    return bytes(out)


def main():
    library = ctypes.CDLL(os.path.join(os.environ["LLAMACPP_DIR"], "libggml-base.so"))
    rng = random.Random(20240917)
    cases = []
    for name, type_id, elements, size, scales in TYPES:
        function = getattr(library, "dequantize_row_" + name)
        function.restype = None
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64]
        data = blocks(rng, ELEMENTS // elements, size, scales)
        values = (ctypes.c_float * ELEMENTS)()
        function(data, values, ELEMENTS)
        cases.append((type_id, ELEMENTS, data, bytes(values)))
    for function_name, type_id in (("ggml_fp16_to_fp32_row", 1), ("ggml_bf16_to_fp32_row", 30)):
        function = getattr(library, function_name)
        function.restype = None
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64]
        data = rng.randbytes(2 * ELEMENTS)
        values = (ctypes.c_float * ELEMENTS)()
        function(data, values, ELEMENTS)
        cases.append((type_id, ELEMENTS, data, bytes(values)))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "dequantise.bin")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(b"SHDQ" + struct.pack("<I", len(cases)))
        for type_id, elements, data, values in cases:
            out.write(struct.pack("<III", type_id, elements, len(data)) + data + values)
    print(f"{path}: {len(cases)} types, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    sys.exit(main())
