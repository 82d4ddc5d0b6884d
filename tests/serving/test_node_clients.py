"""Clients written for Node against `shoal serve`: OpenAI's own and one that shares no code with it."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from server import CACHE

FOLDER = Path(__file__).parent / "node"
PACKAGES = CACHE / "node"  # scripts/run_tests.py node_tools


@pytest.fixture(scope="module")
def node():
    path = shutil.which("node")
    if path is None:
        pytest.skip("there is no node")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60).stdout
    if int(re.match(r"v(\d+)", version)[1]) < 20:
        pytest.skip(f"node {version.strip()} is older than the clients take (20)")
    if not (PACKAGES / "node_modules" / "openai").exists():
        pytest.skip("the Node clients are not installed (./test node_tools; needs npm and its registry)")
    return path


@pytest.mark.parametrize("file", ["openai_client.test.mjs", "ai_sdk.test.mjs"])
def test_a_client_for_node(node, demo, file):
    run = subprocess.run([node, "--test", "--test-reporter=tap", FOLDER / file], capture_output=True, text=True, timeout=900,
                         env={**os.environ, "SHOAL_URL": demo.url, "SHOAL_WORKER_URL": getattr(demo, "worker_url", demo.url),
                              "SHOAL_NODE_MODULES": str(PACKAGES)})
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-5_000:]
    print("\n".join(line for line in run.stdout.splitlines() if re.match(r"# (tests|pass|fail)", line)))
