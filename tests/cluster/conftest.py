import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "serving"))

import namespaces  # noqa: E402
from asking import answers  # noqa: E402
from server import BINARY, SMALL_MODEL, Server, skip_unbuilt  # noqa: E402


def pytest_collection_modifyitems(items):
    skip_unbuilt(items)


@pytest.fixture(scope="session")
def network():
    reason = namespaces.why_not()
    if reason:
        pytest.skip(reason)
    with namespaces.Network(4) as made:
        yield made


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Random weights, 8,192 tokens of context."""
    file = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    subprocess.run([BINARY, "synth", "llama-tiny-8k", file], check=True, capture_output=True)
    return file


@pytest.fixture(scope="session")
def one_rank(small_model):
    """What one rank answers."""
    with Server(small_model, "--served-model-name", "small", "--deterministic", "--threads", 1) as server:
        return answers(server)


@pytest.fixture(scope="session")
def small_model(request):
    return SMALL_MODEL if SMALL_MODEL.exists() else request.getfixturevalue("tiny_model")
