import shutil
import subprocess

import pytest

from server import BINARY, DEMO_MODEL, SMALL_MODEL, Server, skip_unbuilt


def pytest_collection_modifyitems(items):
    skip_unbuilt(items)


@pytest.fixture(scope="session")
def demo_model():
    if not DEMO_MODEL.exists():
        pytest.skip("the demo model is not cached (scripts/demo_model)")
    return DEMO_MODEL


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory):
    """A model of 1.4 million random weights with a chat template, as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("small") / "micro"
    subprocess.run([BINARY, "synth", "llama-micro", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def small_model(request):
    """The smallest trained model; without it one of random weights, which the tests of the server do as well with."""
    return SMALL_MODEL if SMALL_MODEL.exists() else request.getfixturevalue("small_folder")


@pytest.fixture(scope="session")
def token(tmp_path_factory):
    """What the workers of a pair prove to each other to hold."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text("a token that both workers hold")
    file.chmod(0o600)
    return file


@pytest.fixture(scope="session")
def demo(demo_model):
    """The demo model, served for all tests that only ask."""
    with Server(demo_model, "--served-model-name", "demo") as server:
        yield server


@pytest.fixture(scope="session")
def small(small_model):
    with Server(small_model, "--served-model-name", "small") as server:
        yield server


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A folder with server.pem, which vouches for itself as localhost and 127.0.0.1, and its server.key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl command to make a certificate with")
    folder = tmp_path_factory.mktemp("certificates")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", folder / "server.key", "-out", folder / "server.pem"], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def alone(small_model):
    """What answers of several workers are compared with: one server, strict."""
    with Server(small_model, "--served-model-name", "small", "--deterministic", "--threads", 1) as server:
        yield server
