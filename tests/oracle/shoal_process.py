"""How the oracle tests find and run the program, and where they find the shared models."""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("SHOAL_SHARED", ROOT.parent / "shared"))
PROGRAM = os.environ.get("SHOAL", str(ROOT / "build" / "release" / "shoal"))
# Exit status that ctest reports as a skip.
SKIPPED = 77


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(SKIPPED)


def require_shared(*parts):
    path = SHARED.joinpath(*parts)
    if not path.exists():
        skip(f"{path} is not there; set SHOAL_SHARED to the folder of shared models")
    return path


def run(arguments, text="", isa=None):
    """Standard output of `shoal ARGUMENTS`; raises where it fails."""
    environment = dict(os.environ)
    if isa is not None:
        environment["SHOAL_ISA"] = isa
    done = subprocess.run([PROGRAM, *map(str, arguments)], input=text, text=True, capture_output=True, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"shoal {' '.join(map(str, arguments))}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def score(model, prompts, flags=(), isa=None):
    """One answer for each list of token ids."""
    lines = "".join(json.dumps({"ids": ids}) + "\n" for ids in prompts)
    return [json.loads(line) for line in run(["score", model, "--jsonl", *flags], lines, isa).splitlines()]


def isas():
    """The instruction sets to test: those this machine has, or the ones in SHOAL_TEST_ISAS."""
    if "SHOAL_TEST_ISAS" in os.environ:
        return os.environ["SHOAL_TEST_ISAS"].split(",")
    flags = set()
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("flags"):
                flags = set(line.split())
                break
    found = ["scalar"]
    if {"avx2", "fma", "f16c"} <= flags:
        found.append("avx2")
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"} <= flags:
        found.append("avx512")
    if {"amx_tile", "amx_int8", "amx_bf16"} <= flags:
        found.append("amx")
    return found
