#!/usr/bin/env python3
"""Two ranks of one thread beside other programs that share a model over two processes: the same shape, turn by turn, in one run.

    bench/versus_ranks.py MODEL.gguf [--peer-source DIR] [--prompt 512] [--generate 32] [--rounds 3] [--json OUT.json]

shoal --tp 2 against llama.cpp's RPC in its two faster set-ups (half of the layers on a server, and both halves of every tensor on
two servers), and distributed-llama with a root and one worker. That one is built from DIR, a checkout of its sources, in a cache
folder outside this repository; without --peer-source it is skipped. It reads its own format and 4-bit weights only, so it is given
random ones of the model's shape: beside 8-bit weights it reads half as many bytes a token; give a Q4_0 file to compare like with like.
The better peer of each figure is the one that counts.
"""
import argparse
import array
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from measured import free_port, llamacpp, run_json, spread

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "shoal/distributed-llama"


def listens(port):
    """Asked of the kernel: a connection would take the place of the server's one client. 0A is the state of a listener."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


@contextmanager
def server(command, port):
    """A peer's server that listens on this port while the block runs."""
    with open(CACHE.parent / "peer.log", "a") as log:
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 10
        while not listens(port):
            if process.poll() is not None:
                sys.exit(f"{Path(command[0]).name} ended at once with exit code {process.returncode}")
            if time.monotonic() > deadline:
                sys.exit(f"{Path(command[0]).name} does not listen on port {port}")
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def shoal(args):
    run = run_json([args.binary, "bench", "engine", args.model, "--served", "--tp", 2, "--threads", 1, "--prompt", args.prompt, "--generate",
                    args.generate, "--chunk", 512, "--repeat", 1, "--json"])["runs"][0]
    return {"prefill": run["prefill_tokens_per_s"], "decode": run["decode_tokens_per_s"]}


def llamacpp_rpc(args, where, flags):
    rows = run_json([args.llamacpp / "llama-bench", "-m", args.model, "-p", args.prompt, "-n", args.generate, "-t", 1, "-r", 1, "-o", "json",
                     "--rpc", ",".join(where), *flags])
    return {"prefill" if row["n_prompt"] else "decode": row["avg_ts"] for row in rows}


def rpc_half(args):
    port = free_port()
    with server([args.llamacpp / "ggml-rpc-server", "-p", port, "-t", 1], port) as at:
        return llamacpp_rpc(args, [at], ["-ngl", args.shape["layers"] // 2])


def rpc_tensors(args):
    first, second = free_port(), free_port()
    with server([args.llamacpp / "ggml-rpc-server", "-p", first, "-t", 1], first) as one, \
            server([args.llamacpp / "ggml-rpc-server", "-p", second, "-t", 1], second) as two:
        return llamacpp_rpc(args, [one, two], ["-ngl", 99, "-sm", "tensor", "-fa", 1])


def distributed_llama(args):
    port = free_port()
    with server([args.dllama, "worker", "--port", port, "--nthreads", 1], port) as at:
        command = [args.dllama, "inference", "--model", CACHE / "shape.m", "--tokenizer", CACHE / "shape.t", "--buffer-float-type", "q80",
                   "--nthreads", 1, "--max-seq-len", 4096, "--prompt", "a" * (args.prompt - 1), "--steps", args.prompt + args.generate, "--workers", at]
        run = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace")
    rates = re.findall(r"tokens/s:\s*([\d.]+)", run.stdout)
    if run.returncode != 0 or len(rates) != 2:
        sys.exit(f"dllama failed:\n{(run.stdout + run.stderr)[-2000:]}")
    return {"prefill": float(rates[0]), "decode": float(rates[1])}


def build_distributed_llama(source):
    if not (CACHE / "source/dllama").exists():
        shutil.rmtree(CACHE / "source", ignore_errors=True)
        shutil.copytree(source, CACHE / "source", ignore=shutil.ignore_patterns(".git"))
        subprocess.run(["make", "-C", CACHE / "source", "dllama"], check=True, stdout=sys.stderr)
    return CACHE / "source/dllama"


def shape_of(binary, model):
    text = subprocess.run([binary, "inspect", model], capture_output=True, text=True, check=True).stdout
    found = re.search(r"shape\s+(\d+) layers, (\d+) wide, (\d+) query and (\d+) KV heads of (\d+), feed-forward (\d+)\s+vocabulary (\d+)", text)
    names = ("layers", "width", "heads", "kv_heads", "head_dim", "feed_forward", "vocabulary")
    return dict(zip(names, map(int, found.groups())))


def write_shape(shape):
    """The formats of its converter/writer.py and converter/tokenizer-writer.py: a head of key and value pairs, then matrices in the
    order of loadLlmNetWeight. Q40 is llama.cpp's Q4_0: a half-precision scale and 32 codes of 4 bits."""
    draw = random.Random(1)
    mark = json.dumps(shape)
    if (CACHE / "shape.json").exists() and (CACHE / "shape.json").read_text() == mark:
        return
    width, kv = shape["width"], shape["kv_heads"] * shape["head_dim"]
    keys = {0: 1, 1: 0xABCD00, 2: width, 3: shape["feed_forward"], 4: shape["layers"], 5: shape["heads"], 6: shape["kv_heads"], 7: 0, 8: 0,
            9: shape["vocabulary"], 10: 131072, 11: 1, 12: 500000, 13: 2, 19: shape["head_dim"], 20: 5}
    pairs = b"".join(struct.pack("<ii", key, value) for key, value in keys.items())
    blocks = b"".join(struct.pack("<e", 0.002) + draw.randbytes(16) for _ in range(65536))
    floats = array.array("f", (draw.gauss(0, 0.02) for _ in range(262144))).tobytes()

    with open(CACHE / "shape.m", "wb") as file:
        def repeat(piece, size):
            while size > 0:
                file.write(piece[:size])
                size -= len(piece)

        def q40(values):
            repeat(blocks, values // 32 * 18)

        def ones(values):
            file.write(array.array("f", [1.0] * values).tobytes())

        file.write(struct.pack("<ii", 0xA00ABCD, 8 + len(pairs)) + pairs)
        repeat(floats, shape["vocabulary"] * width * 4)
        for _ in range(shape["layers"]):
            for values in (width * width, width * kv, width * kv, width * width, *[width * shape["feed_forward"]] * 3):
                q40(values)
            ones(2 * width)
        ones(width)
        q40(shape["vocabulary"] * width)

    tokens = [bytes([byte]) for byte in range(1, 256)]
    tokens += [b"<%d>" % index for index in range(len(tokens), shape["vocabulary"])]
    begin = shape["vocabulary"] - 256  # where its special tokens begin
    pairs = b"".join(struct.pack("<ii", key, value) for key, value in {0: 1, 1: len(tokens), 2: 16, 3: begin, 9: 1, 10: 1}.items())
    with open(CACHE / "shape.t", "wb") as file:
        file.write(struct.pack("<ii", 0x567124, 8 + len(pairs)) + pairs + struct.pack("<i", begin + 1))
        for index, token in enumerate(tokens):
            file.write(struct.pack("<fI", -float(index), len(token)) + token)
    (CACHE / "shape.json").write_text(mark)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--peer-source", help="a checkout of distributed-llama's sources; skipped without")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    args = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    args.llamacpp = llamacpp()
    args.shape = shape_of(args.binary, args.model)
    sides = {"shoal --tp 2": shoal, "llama.cpp RPC, half the layers": rpc_half, "llama.cpp RPC, tensors over two": rpc_tensors}
    if args.peer_source:
        args.dllama = build_distributed_llama(args.peer_source)
        write_shape(args.shape)
        sides["distributed-llama, root and worker"] = distributed_llama
    else:
        print("distributed-llama: skipped, no --peer-source", file=sys.stderr)

    ceilings = run_json([args.binary, "bench", "machine", "--threads", 2, "--json"])
    runs = []
    for turn in range(args.rounds):
        run = {name: measure(args) for name, measure in sides.items()}
        best = {key: max(run[name][key] for name in run if not name.startswith("shoal")) for key in ("prefill", "decode")}
        run["ratio to the better"] = {key: run["shoal --tp 2"][key] / best[key] for key in best}
        runs.append(run)
        print(f"round {turn + 1}: " + ", ".join(f"{name} {each['prefill']:.1f} / {each['decode']:.2f}" for name, each in run.items()), file=sys.stderr)
    median = {name: {key: spread([run[name][key] for run in runs]) for key in ("prefill", "decode")} for name in runs[0]}
    for name, each in median.items():
        print(f"{name:36}" + ", ".join(f"{key} {value['median']:7.2f} [{value['min']:.2f} .. {value['max']:.2f}]" for key, value in each.items()))
    if args.json:
        Path(args.json).write_text(json.dumps({
            "bench": "versus_ranks", "machine": ceilings["machine"], "ceilings": ceilings["ceilings"],
            "params": {"model": Path(args.model).name, "prompt": args.prompt, "generate": args.generate, "rounds": args.rounds},
            "runs": runs, "median": median, "peer": "llama.cpp of llama-cpp-python 0.3.36 by RPC; distributed-llama where given"}, indent=2) + "\n")


if __name__ == "__main__":
    main()
