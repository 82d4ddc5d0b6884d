"""SGLang's router (PyPI: sglang-router) in its prefill/decode mode in front of our two workers."""
import importlib.util
import json
import re
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pair import Pair, answers, body_of
from ports import free_port
from server import Server

PROMPTS = ["Once", "The dog and the cat " * 20, "One day a little girl named Lily found a needle in her room. " * 3]


def rounded(result):
    """Log-probabilities as the numbers of 32 bits that they are: the router writes them anew, in other digits."""
    choices, tokens = result
    return [(text, finish, struct.pack(f"{len(logprobs)}f", *logprobs)) for text, finish, logprobs in choices], tokens


class Router(Server):
    def __init__(self, pair):
        self.host, self.tls, self.port = "127.0.0.1", None, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = tempfile.NamedTemporaryFile("w+", prefix="sglang-router-", suffix=".log")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sglang_router.launch_router", "--pd-disaggregation", "--prefill", pair.prefill.url,
             str(pair.bootstrap), "--decode", pair.decode.url, "--host", "127.0.0.1", "--port", str(self.port), "--policy", "random",
             "--prometheus-port", str(free_port()), "--disable-retries"],
            stdout=self.log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while not self.ready():
            assert self.process.poll() is None and time.monotonic() < deadline, self.output()
            time.sleep(0.1)

    def ready(self):
        try:
            return self.get("/readiness", timeout=5)[0] == 200
        except OSError:
            return False


@pytest.fixture(scope="module")
def pair(small_folder, token):
    with Pair(small_folder, token) as pair:
        yield pair


@pytest.fixture(scope="module")
def router(pair):
    if importlib.util.find_spec("sglang_router") is None:
        pytest.skip("sglang-router is not installed (./test python_tools)")
    router = Router(pair)
    yield router
    router.process.terminate()
    router.process.wait(20)


@pytest.fixture(scope="module")
def alone(small_folder):
    with Server(small_folder, "--served-model-name", "small", "--deterministic", "--threads", 1) as server:
        yield server


def handed_over(pair):
    return pair.prefill.get("/get_server_info")[1]["rooms"]["success"]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_whole_answers(router, pair, alone, prompt):
    before = handed_over(pair)
    body = body_of(prompt, 16)
    status, answer = router.post("/v1/completions", body)
    assert status == 200, (answer, router.output()[-2000:])
    assert rounded(answers(answer)) == rounded(answers(alone.post("/v1/completions", body)[1]))
    pair.wait_idle()
    assert handed_over(pair) == before + 1


@pytest.mark.parametrize("prompt", PROMPTS)
def test_streams(router, pair, alone, prompt):
    body = {k: v for k, v in body_of(prompt, 16).items() if k != "logprobs"}
    request = json.dumps({**body, "stream": True}).encode()
    with router.connect() as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(request) + request)
        data = b"".join(iter(lambda: client.recv(65536), b""))
    assert b"data: [DONE]" in data, (data[-500:], router.output()[-2000:])
    text = "".join(choice["text"] for event in re.findall(rb"data: (\{.*?\})\r?\n", data) for choice in json.loads(event)["choices"])
    assert text == alone.post("/v1/completions", body)[1]["choices"][0]["text"]
    pair.wait_idle()


def test_chat_and_many_at_once(router, pair, alone):
    chat = {"model": "small", "messages": [{"role": "user", "content": "Tell me of the dog."}], "max_tokens": 12, "temperature": 0}
    status, answer = router.post("/v1/chat/completions", chat)
    expected = alone.post("/v1/chat/completions", chat)
    assert status == expected[0] == 200, answer
    assert answer["choices"][0]["message"]["content"] == expected[1]["choices"][0]["message"]["content"]
    bodies = [body_of(f"{i} times " * (3 + i), 5 + i % 20, seed=i) for i in range(12)]
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda body: rounded(answers(router.post("/v1/completions", body)[1])), bodies))
    assert got == [rounded(answers(alone.post("/v1/completions", body)[1])) for body in bodies]
    pair.wait_idle()


def test_a_client_that_goes_frees_both_workers(router, pair):
    request = json.dumps({"model": "small", "prompt": "The dog " * 60, "max_tokens": 300, "ignore_eos": True, "stream": True}).encode()
    with router.connect() as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                       % len(request) + request)
        while b"text" not in client.recv(65536):
            pass
    pair.wait_idle(5)
