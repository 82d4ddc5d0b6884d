#!/usr/bin/env python3
"""Runs the parts of the test suite one after the other and prints what each took. Called by ./test."""
import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "shoal"
VENV = CACHE / "venv"
NODE = CACHE / "node"  # tests/serving/test_node_clients.py looks here
# The official client, the test runner and a router that drives pairs, for tests; nothing here is part of the product.
PYTHON_PACKAGES = ["openai==3.57.0", "pytest==9.2.0", "sglang-router==0.3.2"]
FUZZ_SECONDS = 3600  # for each target


def run(command, **options):
    print(f"  $ {' '.join(str(part) for part in command)}", flush=True)
    return subprocess.run([str(part) for part in command], cwd=ROOT, **options).returncode == 0


def ctest(preset, *arguments):
    return run(["ctest", "--test-dir", f"build/{preset}", "--output-on-failure", "--no-tests=error", *arguments])


def build():
    return run(["scripts/build", "release"])


def headers():
    return run(["scripts/build", "release", "shoal_headers"])


def unit():
    return ctest("release", "-L", "unit", "-j2")


def demo_model():
    """The model that several tests talk to. They say `skipped` without it, so a machine without network passes."""
    if not run(["scripts/demo_model"]):
        print("  no demo model: the tests that need it will be skipped")
    return True


def has_python_tools():
    return (VENV / "bin" / "pytest").exists()


def tokenizers():
    """Vocabularies of real families, which their tests skip without."""
    if not run(["scripts/tokenizers"]):
        print("  no tokenizers: the tests that need them will be skipped")
    return True


def python_tools():
    """The parts that need them say `skipped` without, so a machine without a package index passes."""
    python = VENV / "bin" / "python"
    made = python.exists() or run([sys.executable, "-m", "venv", VENV])
    if not (made and run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PYTHON_PACKAGES])):
        print("  the Python packages could not be installed: " +
              ("those of an earlier run are used" if has_python_tools() else "the parts that need them will be skipped"))
    return True


def node_tools():
    """The clients for Node, as tests/serving/node/package.json pins them; their tests say `skipped` without."""
    if shutil.which("npm") is None:
        print("  there is no npm: the tests of clients for Node will be skipped")
        return True
    NODE.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "tests/serving/node/package.json", NODE / "package.json")
    if not run(["npm", "install", "--prefix", NODE, "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]):
        print("  the clients for Node could not be installed: their tests will be skipped")
    return True


def pytest(*arguments, **variables):
    if not has_python_tools():
        print("  skipped: pytest is not installed (python_tools)")
        return None
    environment = dict(os.environ, SHOAL_BINARY=str(ROOT / "build/release/shoal"), **variables)
    return run([VENV / "bin" / "python", "-m", "pytest", "-q", "-rs", *arguments], env=environment)


def oracle():
    return ctest("release", "-L", "oracle")


def serving():
    return pytest("tests/serving", "-m", "not slow")


def cluster():
    """Ranks on hosts of their own (network namespaces; says `skipped` where there can be none), and harmed on purpose."""
    return run(["scripts/build", "faults", "shoal"]) and pytest("tests/cluster")


def full_cluster():
    results = [pytest("tests/cluster/test_failures.py", SHOAL_FAULT_ROUNDS="100"),
               pytest("tests/cluster/test_gateway_kills.py", SHOAL_KILL_ROUNDS="50", SHOAL_KILL_MODEL="demo")]
    return None if None in results else all(results)


def sanitizers():
    """The units with threads under ThreadSanitizer; AddressSanitizer over everything is a part of --full."""
    folders = ["core", "engine", "wire", "comm", "handover"]
    return run(["scripts/build", "tsan", *(f"test_{folder}" for folder in folders)]) and ctest("tsan", "-R", f"^unit_({'|'.join(folders)})$")


def full_sanitizers():
    return all(run(["scripts/build", preset]) and ctest(preset, "-L", "unit") for preset in ("asan", "tsan"))


def full_exactness():
    """Every model over every layout, prompts up to the model's context; `unit` runs a sample."""
    env = dict(os.environ, SHOAL_EXACTNESS="all")
    return (run(["build/release/test_engine", "--gtest_filter=*Exactness*:*ContextParallel*"], env=env)
            and run(["build/release/test_handover", "--gtest_filter=*Exactness*"], env=env))


def full_python():
    return pytest("tests/serving", "-m", "slow", "--ignore", "tests/serving/test_handover_faults.py")


def full_handover_faults():
    """Every harm at every state of a handover; `serving` does a sample."""
    return pytest("tests/serving/test_handover_faults.py", SHOAL_FAULT_ROUNDS="20")


def has_isa(isa):
    """Whether this machine can run it; the program refuses it by name where not."""
    asked = subprocess.run([ROOT / "build/release/shoal", "bench", "machine", "--threads", "1", "--json"],
                           env=dict(os.environ, SHOAL_ISA=isa), capture_output=True, text=True)
    if asked.returncode != 0 and "SHOAL_ISA asks for" in asked.stderr:
        print(f"  skipped: {asked.stderr.strip().splitlines()[-1]}")
        return False
    return True


def isa_paths():
    return all(
        run(["ctest", "--test-dir", "build/release", "--output-on-failure", "-R", "^unit_(model|engine)$"], env=dict(os.environ, SHOAL_ISA=isa))
        for isa in ("scalar", "avx2", "avx512") if has_isa(isa))


def fuzz():
    return run(["scripts/fuzz", "--seconds", str(FUZZ_SECONDS)])


PARTS = {
    "build": build,
    "headers": headers,
    "tokenizers": tokenizers,
    "unit": unit,
    "demo_model": demo_model,
    "python_tools": python_tools,
    "node_tools": node_tools,
    "oracle": oracle,
    "serving": serving,
    "cluster": cluster,
    "sanitizers": sanitizers,
}
FULL_PARTS = {
    "full_sanitizers": full_sanitizers,
    "full_exactness": full_exactness,
    "full_python": full_python,
    "full_handover_faults": full_handover_faults,
    "full_cluster": full_cluster,
    "isa_paths": isa_paths,
    "fuzz": fuzz,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--full", action="store_true", help="also the long runs")
    parser.add_argument("--list", action="store_true", help="name the parts")
    args = parser.parse_args()
    known = {**PARTS, **FULL_PARTS}
    if args.list:
        print("\n".join(known))
        return 0
    unknown = [part for part in args.parts if part not in known]
    if unknown:
        parser.error(f"unknown part {unknown[0]}; known: {', '.join(known)}")
    chosen = args.parts or [*PARTS, *(FULL_PARTS if args.full else [])]

    results = []
    for part in chosen:
        print(f"\n== {part}", flush=True)
        begin = time.monotonic()
        passed = known[part]()
        results.append((part, passed, (time.monotonic() - begin) / 60))
        if part == "build" and not passed:
            break

    print("\nMinutes by part")
    for part, passed, minutes in results:
        print(f"  {part:16} {minutes:6.1f}  {'skipped' if passed is None else 'passed' if passed else 'FAILED'}")
    skipped = sum(passed is None for _, passed, _ in results)
    failed = sum(passed is False for _, passed, _ in results)
    print(f"  {'total':16} {sum(minutes for *_, minutes in results):6.1f}")
    print(f"parts: {len(results) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
