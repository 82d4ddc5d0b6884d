#!/usr/bin/env python3
"""Encoding and decoding speed on one thread beside Hugging Face's tokenizers library, in turns, on the same text.

    bench/tokenizer.py [FOLDER] [--text FILE] [--rounds 5] [--json OUT.json]

FOLDER holds tokenizer.json; default: Llama 3.1's as scripts/tokenizers fetches it. The text, by default the English of this
repository's documents, is encoded whole and again in pieces of 2 KB, as prompts come. Needs tokenizers==0.22.1 from PyPI, which runs
with one thread. Ids must be the same.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from measured import spread

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "shoal"
PIECE = 2048


def default_text():
    parts = [path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]]
    return "\n".join(parts * (1 + 1_000_000 // sum(map(len, parts))))


def cut(text):
    """The pieces of `shoal bench tokenizer`: whole characters, at most PIECE bytes."""
    pieces, current, size = [], [], 0
    for character in text:
        length = len(character.encode())
        if size + length > PIECE:
            pieces.append("".join(current))
            current, size = [], 0
        current.append(character)
        size += length
    return [*pieces, "".join(current)]


def ours(args, path):
    command = [args.binary, "bench", "tokenizer", args.folder, "--text", path, "--piece", PIECE, "--repeat", 1, "--json"]
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    report = json.loads(run.stdout)
    return {key.removesuffix("_mb_per_s"): value["median"] for key, value in report["median"].items()}, report


def theirs(tokenizer, text, pieces):
    from tokenizers.decoders import DecodeStream

    megabytes = len(text.encode()) / 1e6
    begin = time.monotonic()
    tokenizer.encode(text, add_special_tokens=False)
    encoded = time.monotonic()
    ids = [tokenizer.encode(piece, add_special_tokens=False).ids for piece in pieces]
    in_pieces = time.monotonic()
    for one in ids:
        stream = DecodeStream(skip_special_tokens=False)
        for token in one:
            stream.step(tokenizer, token)
    decoded = time.monotonic()
    return {"encode": megabytes / (encoded - begin), "encode_pieces": megabytes / (in_pieces - encoded),
            "decode_stream": megabytes / (decoded - in_pieces)}


def same_ids(args, tokenizer, pieces):
    lines = "".join(json.dumps({"text": piece, "add_special": False}) + "\n" for piece in pieces)
    run = subprocess.run([str(args.binary), "tokenize", str(args.folder), "--jsonl"], input=lines, capture_output=True, text=True, check=True)
    got = [json.loads(line)["ids"] for line in run.stdout.splitlines()]
    return got == [tokenizer.encode(piece, add_special_tokens=False).ids for piece in pieces]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=CACHE / "tokenizers" / "llama3_1")
    parser.add_argument("--binary", default=ROOT / "build/release/shoal")
    parser.add_argument("--text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()
    import tokenizers

    text = Path(args.text).read_text() if args.text else default_text()
    pieces = cut(text)
    reference = tokenizers.Tokenizer.from_file(str(Path(args.folder) / "tokenizer.json"))
    if not same_ids(args, reference, pieces):
        sys.exit("the ids differ from the reference's")
    runs = []
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        for _ in range(args.rounds):
            mine, report = ours(args, file.name)
            peer = theirs(reference, text, pieces)
            runs.append({"shoal": mine, "tokenizers": peer, "ratio": {key: mine[key] / peer[key] for key in mine}})
    median = {who: {key: spread([run[who][key] for run in runs]) for key in runs[0][who]} for who in runs[0]}
    for key, what in (("encode", "encode, whole"), ("encode_pieces", "encode, 2 KB pieces"), ("decode_stream", "decode, id by id")):
        print(f"{what:20} shoal {median['shoal'][key]['median']:7.2f} MB/s, tokenizers {median['tokenizers'][key]['median']:7.2f}: "
              f"{median['ratio'][key]['median']:.2f}x")
    if args.json:
        Path(args.json).write_text(json.dumps({
            "bench": "tokenizer", "machine": report["machine"], "params": {**report["params"], "model": Path(args.folder).name, "rounds": args.rounds},
            "runs": runs, "median": median, "peer": f"tokenizers {tokenizers.__version__}, one thread"}, indent=2) + "\n")


if __name__ == "__main__":
    main()
