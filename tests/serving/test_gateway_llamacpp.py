"""llama.cpp's own server behind the gateway: a plain engine of the OpenAI API."""
import json
import subprocess
import time

import pytest

from gateway import Gateway
from ports import free_port
from server import CACHE
from test_gateway import streamed

BUILDS = sorted((CACHE / "llamacpp").glob("build-*/bin/llama-server"))
ASK = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 16, "temperature": 0}


@pytest.fixture(scope="module")
def llama(demo_model):
    if not BUILDS:
        pytest.skip("llama.cpp's server is not built (bench/versus_llamacpp.py builds it)")
    port = free_port()
    process = subprocess.Popen([BUILDS[-1], "-m", demo_model, "--host", "127.0.0.1", "--port", str(port), "-c", "2048", "-t", "2",
                                "--alias", "llama"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield process, f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def gateway(llama):
    with Gateway(flags=["--worker", llama[1]]) as server:
        server.wait_for_workers(1, 60)
        yield server


def test_it_is_a_plain_engine_with_its_models(gateway, llama):
    assert gateway.workers()[llama[1]]["kind"] == "plain"
    assert [model["id"] for model in gateway.get("/v1/models")[1]["data"]] == ["llama"]


def test_it_answers_whole_and_streamed_alike(gateway):
    status, whole = gateway.post("/v1/chat/completions", {**ASK, "model": "llama"})
    assert status == 200 and whole["choices"][0]["message"]["content"], whole
    _, events = streamed(gateway, {**ASK, "model": "llama"}, path="/v1/chat/completions")
    assert events[-1] == "[DONE]"
    chunks = [json.loads(one) for one in events[:-1]]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert next(chunk["usage"] for chunk in chunks if chunk.get("usage"))["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_its_end_in_the_middle_is_told(gateway, llama):
    body = json.dumps({**ASK, "model": "llama", "max_tokens": 1500, "ignore_eos": True, "stream": True}).encode()
    with gateway.connect() as client:
        client.settimeout(120)
        client.sendall(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        seen = b""
        while seen.count(b"data:") < 10:
            seen += client.recv(65536)
        llama[0].kill()
        while chunk := client.recv(65536):
            seen += chunk
    assert b"no token ids" in seen and seen.endswith(b"data: [DONE]\n\n")
    deadline = time.monotonic() + 20
    while gateway.get("/health")[0] != 503:
        assert time.monotonic() < deadline
        time.sleep(0.05)
