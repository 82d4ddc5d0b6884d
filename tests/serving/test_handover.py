"""A prefill and a decode worker behind `shoal pair`: the same answers as one server, nothing held after any end."""
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pair import Pair, answers, body_of
from server import BINARY

PROMPTS = [("Once", 24), ("Once upon a time there was a little girl who " * 3, 20), ("The dog and the cat " * 22, 30)]


@pytest.fixture(scope="module")
def pair(small_model, token):
    with Pair(small_model, token) as pair:
        yield pair


def streamed(server, body):
    """Text by choice, put together, and the last finish reasons."""
    request = json.dumps({**body, "stream": True}).encode()
    with server.connect() as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(request) + request)
        data = b""
        while chunk := client.recv(65536):
            data += chunk
    assert b"data: [DONE]" in data, data[-500:]
    text, finish = {}, {}
    for event in re.findall(rb"data: (\{.*?\})\r?\n", data):
        for choice in json.loads(event)["choices"]:
            text[choice["index"]] = text.get(choice["index"], "") + choice["text"]
            if choice["finish_reason"]:
                finish[choice["index"]] = choice["finish_reason"]
    return text, finish


@pytest.mark.parametrize("prompt,tokens", PROMPTS)
@pytest.mark.parametrize("more", [{}, {"n": 2}, {"stop": ["the"]}, {"max_tokens": 1}], ids=["one", "n2", "stop", "first"])
def test_answers_are_one_servers(pair, alone, prompt, tokens, more):
    body = body_of(prompt, tokens, **more)
    status, answer = pair.front.post("/v1/completions", body)
    assert status == 200, answer
    expected = alone.post("/v1/completions", body)[1]
    assert answers(answer) == answers(expected)
    plain = {k: v for k, v in body.items() if k != "logprobs"}
    assert streamed(pair.front, plain) == streamed(alone, plain)
    pair.wait_idle()


def test_a_list_of_prompts_has_a_room_each(pair, alone):
    body = body_of(["Once upon", "The dog " * 20], 12, n=2)
    assert answers(pair.front.post("/v1/completions", body)[1]) == answers(alone.post("/v1/completions", body)[1])


def test_many_at_once(pair, alone):
    bodies = [body_of(f"{i} times " * (3 + 5 * i % 40), 5 + i % 30, seed=i) for i in range(40)]
    with ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda body: answers(pair.front.post("/v1/completions", body)[1]), bodies))
        expected = list(pool.map(lambda body: answers(alone.post("/v1/completions", body)[1]), bodies))
    assert got == expected
    pair.wait_idle()
    # Both are on one host and the same user's.
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    if not yama.exists() or yama.read_text().strip() == "0":
        assert " by=memory " in pair.prefill.output() and " by=tcp " not in pair.prefill.output()
    metrics = pair.prefill.get("/metrics")[1]
    assert re.search(r'^shoal_rooms_ended_total\{result="success"\} [1-9]', metrics, re.M)
    assert re.search(r'^shoal_comm_bytes_total\{rank="0",purpose="kv",scope="host"\} [1-9]', metrics, re.M)


def test_a_client_that_goes_frees_both_sides(pair):
    body = json.dumps({"model": "small", "prompt": "The dog " * 60, "max_tokens": 300, "ignore_eos": True, "stream": True}).encode()
    for wait_for_text in (False, True):
        with pair.front.connect() as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            while wait_for_text and b"text" not in client.recv(65536):
                pass
        pair.wait_idle(5)


def test_one_leg_alone_ends_by_itself(pair):
    """A decode leg whose other leg never comes, and the other way round when the request is aborted."""
    body = body_of("Once", 5, bootstrap_host="127.0.0.1", bootstrap_port=pair.bootstrap, bootstrap_room=1, rid="alone")
    with ThreadPoolExecutor(1) as pool:
        leg = pool.submit(pair.decode.post, "/v1/completions", body)
        deadline = time.monotonic() + 10
        while not pair.decode.post("/abort_request", {"rid": "alone"})[1]["cancelled"] and time.monotonic() < deadline:
            time.sleep(0.02)
        leg.result(10)
    pair.wait_idle()
    # The room is over there: whoever comes late is told so at once.
    status, answer = pair.decode.post("/v1/completions", {**body, "rid": "again"})
    assert status == 400 and "room 1 is over" in answer["error"]["message"], answer


def test_a_leg_that_is_ended_at_its_worker_ends_the_other(small_model, token):
    """Also where decode has not called yet: it runs one answer at a time, and ours is the next."""
    with Pair(small_model, token, decode=("--max-seqs", 1)) as pair, ThreadPoolExecutor(2) as pool:
        first = pool.submit(pair.front.post, "/v1/completions", body_of("Once", 400, ignore_eos=True))
        second = pool.submit(pair.front.post, "/v1/completions", body_of("The dog", 5, rid="second"))
        deadline = time.monotonic() + 20
        while pair.decode.get("/get_server_info")[1]["num_requests_waiting"] == 0 and not first.done():
            assert time.monotonic() < deadline
        assert pair.decode.post("/abort_request", {"rid": "second"})[1]["cancelled"] == 1
        assert second.result(10)[0] == 200 and first.result(30)[0] == 200
        pair.wait_idle(3)


def test_an_abort_may_overtake_its_leg(pair):
    for room, worker in ((9001, pair.prefill), (9002, pair.decode)):
        assert worker.post("/abort_request", {"rid": "late", "bootstrap_room": [room, 9003]}) == (200, {"cancelled": 0})
        status, answer = worker.post("/v1/completions", body_of("Once", 5, bootstrap_host="127.0.0.1", bootstrap_room=room, rid="late"))
        assert status == 400 and f"room {room} is over" in answer["error"]["message"], answer
        assert worker.post("/abort_request", {"bootstrap_room": "x"})[0] == 400
        assert worker.post("/abort_request", {})[0] == 400
    pair.wait_idle()


@pytest.mark.slow
def test_a_prefill_leg_that_nobody_calls_for_holds_nothing_and_ends(pair):
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        leg = pool.submit(pair.prefill.post, "/v1/completions", body_of("The dog " * 60, 5, bootstrap_room=9100))
        while not leg.done():
            assert pair.prefill.pages()["held"] == 0
            time.sleep(0.2)
        status, answer = leg.result()
        assert status >= 500 and "did not come in time" in answer["error"]["message"], answer
        assert 28 < time.monotonic() - began < 33
    pair.wait_idle()


@pytest.mark.parametrize("field,value,word", [
    ("bootstrap_room", -1, "bootstrap_room"), ("bootstrap_room", "x", "bootstrap_room"), ("bootstrap_room", [5, 6], "one for each"),
    ("bootstrap_room", 1 << 63, "bootstrap_room"), ("bootstrap_port", 0, "bootstrap_port"), ("bootstrap_host", 3, "bootstrap_host"),
    ("bootstrap_host", None, "bootstrap_host")])
def test_bad_fields_are_named(pair, field, value, word):
    body = body_of("Once", 5, bootstrap_host="127.0.0.1", bootstrap_room=77)
    status, answer = pair.decode.post("/v1/completions", {**body, field: value})
    assert status == 400 and word in answer["error"]["message"], answer
    pair.wait_idle()


def test_a_decode_worker_calls_whom_it_may(small_model, token):
    """--prefill-hosts: a request that names another host gets 400, and nobody is called."""
    with Pair(small_model, token, decode=("--prefill-hosts", "10.9.0.0/16,127.0.0.1,localhost")) as pair:
        assert pair.front.post("/v1/completions", body_of("Once", 5))[0] == 200
        for room, host in enumerate(("127.0.0.2", "2130706433", "::1", "Prefill.example"), 10):
            status, answer = pair.decode.post("/v1/completions", body_of("Once", 5, bootstrap_host=host, bootstrap_port=pair.bootstrap, bootstrap_room=room))
            assert status == 400 and answer["error"]["param"] == "bootstrap_host" and host in answer["error"]["message"], answer
        # One that may be named, at a route that leads elsewhere.
        with Route("127.0.0.2") as route:
            status, answer = pair.decode.post("/v1/completions", body_of("Once", 5, bootstrap_host="localhost", bootstrap_port=route.port, bootstrap_room=20))
            assert status == 503 and "127.0.0.2, which is none of the --prefill-hosts" in answer["error"]["message"], answer
        pair.wait_idle()


class Route:
    """A bootstrap port that names another host."""

    def __init__(self, host):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps({"rank_ip": host, "rank_port": 9}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def test_workers_of_one_host_are_told_by_their_identity(small_model, token):
    """--host-id: KV is read from memory between those of one, and sent between those of two."""
    for prefill, decode, by in (("a", "a", "memory"), ("a", "b", "tcp")):
        with Pair(small_model, token, ("--host-id", prefill), ("--host-id", decode)) as pair:
            assert pair.front.post("/v1/completions", body_of("The dog " * 60, 5))[0] == 200
            pair.wait_idle()
            assert f" by={by} " in pair.prefill.output(), pair.prefill.output()


def test_a_worker_without_a_role_refuses_rooms(alone):
    status, answer = alone.post("/v1/completions", body_of("Once", 5, bootstrap_host="127.0.0.1", bootstrap_room=3))
    assert status == 400 and "--role" in answer["error"]["message"], answer


def test_the_front_sets_the_rooms(pair):
    status, answer = pair.front.post("/v1/completions", body_of("Once", 5, bootstrap_room=3))
    assert status == 400 and "bootstrap_room" in answer["error"]["message"]
    assert pair.front.post("/v1/completions", b"{")[0] == 400
    status, answer = pair.front.post("/v1/completions", body_of("Once", 5, temperature=9))
    assert status == 400 and "temperature" in answer["error"]["message"]
    pair.wait_idle()
    assert pair.front.get("/health")[0] == 200
    assert pair.front.get("/v1/models")[1]["data"][0]["id"] == "small"


def test_routes(pair):
    def ask(method, path):
        with socket.create_connection(("127.0.0.1", pair.bootstrap), timeout=5) as client:
            client.sendall(f"{method} {path} HTTP/1.0\r\nContent-Length: 2\r\n\r\n{{}}".encode())
            return b"".join(iter(lambda: client.recv(4096), b"")).decode()
    assert " 200 " in ask("GET", "/health")
    assert json.loads(ask("GET", "/route?engine_rank=-1").split("\r\n\r\n")[1])["page_size"] == 32
    assert json.loads(ask("GET", "/route?engine_rank=0").split("\r\n\r\n")[1])["rank_port"] > 0
    assert " 404 " in ask("GET", "/route?target_tp_rank=1")
    assert " 400 " in ask("GET", "/route?target_tp_rank=x")
    assert " 403 " in ask("PUT", "/route")


def test_strangers_get_nowhere(pair, alone):
    found = re.search(r"handover_port=(\d+)", pair.prefill.output())
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\x21\x00\x00\x00\x01\x00\x01\x00\x03" + bytes(32)):
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=5) as client:
            answer = b""
            try:
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                while data := client.recv(4096):
                    answer += data
            except OSError:
                pass  # hung up on
            assert len(answer) <= 8 + 64  # a challenge at most
    body = body_of("Once upon", 8)
    assert answers(pair.front.post("/v1/completions", body)[1]) == answers(alone.post("/v1/completions", body)[1])


LAYOUTS = [(("--tp", 2), ("--pp", 2, "--kv-carrier", "tcp")), (("--cp", 2, "--cp-force", 2), ("--tp", 3)), (("--tp", 2, "--pp", 2), ("--cp", 2))]


@pytest.mark.parametrize("prefill,decode", LAYOUTS, ids=[" to ".join("".join(map(str, side)).replace("--", "") for side in pair) for pair in LAYOUTS])
def test_workers_of_many_ranks(small_model, token, alone, prefill, decode):
    with Pair(small_model, token, prefill, decode) as pair:
        for prompt, tokens in PROMPTS:
            body = body_of(prompt, tokens, n=2)
            assert answers(pair.front.post("/v1/completions", body)[1]) == answers(alone.post("/v1/completions", body)[1])
        pair.wait_idle()


@pytest.mark.parametrize("victim", ["prefill", "decode"])
def test_a_rank_that_is_lost_ends_its_requests_and_the_worker_heals(small_model, token, alone, victim):
    with Pair(small_model, token, ("--tp", 2, "--prefill-chunk", 1), ("--tp", 2)) as pair:
        lost, other = (pair.prefill, pair.decode) if victim == "prefill" else (pair.decode, pair.prefill)
        client = long_request(pair)
        os.kill(lost.worker()["ranks"][1]["pid"], signal.SIGKILL)
        client.settimeout(10)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
        client.close()
        assert b" 503 " in answer.split(b"\r\n")[0], answer
        pair.wait_idle(5)
        deadline = time.monotonic() + 30
        while (got := pair.front.post("/v1/completions", body_of("Once upon", 8)))[0] != 200:
            assert time.monotonic() < deadline, got
            time.sleep(0.2)
        assert answers(got[1]) == answers(alone.post("/v1/completions", body_of("Once upon", 8))[1])


def long_request(pair):
    """A request in the middle of its handover: small chunks make it last."""
    body = json.dumps({"model": "small", "prompt": "The dog " * 110, "max_tokens": 40, "ignore_eos": True}).encode()
    client = pair.front.connect()
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    deadline = time.monotonic() + 20
    while pair.decode.get("/get_server_info")[1]["rooms"]["transferring"] == 0:
        assert time.monotonic() < deadline, "nothing was handed over"
    return client


@pytest.mark.parametrize("victim", ["prefill", "decode"])
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_worker_that_is_lost_holds_nobody(small_model, token, victim, how):
    with Pair(small_model, token, prefill=("--prefill-chunk", 1)) as pair:
        lost, other = (pair.prefill, pair.decode) if victim == "prefill" else (pair.decode, pair.prefill)
        client = long_request(pair)
        try:
            lost.process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
            began = time.monotonic()
            while other.pages()["held"] > 0:
                assert time.monotonic() < began + 10, "pages are still held"
                time.sleep(0.01)
            took = time.monotonic() - began
            if victim == "prefill":
                client.settimeout(10)
                answer = b"".join(iter(lambda: client.recv(65536), b""))
                assert b" 503 " in answer.split(b"\r\n")[0], answer
        finally:
            lost.process.kill()
            client.close()
        print(f"{victim} {how}: free after {took:.2f} s")
        assert took < (1.0 if how == "kill" else 2.0) + 0.5  # the machine may be busy
        status, answer = other.post("/v1/completions", body_of("Once", 5))
        assert status == 200, answer


def test_flags_that_would_be_ignored_are_refused(small_model, token):
    for flags in (["--role", "prefill"], ["--role", "decode", "--token-file", token, "--bootstrap-port", "1"], ["--kv-checksum", "full"], ["--role", "prefill", "--token-file", token, "--kv-carrier", "tcp"], ["--role", "prefill", "--token-file", token, "--prefill-hosts", "::1"],
                  ["--role", "decode", "--token-file", token, "--prefill-hosts", "10.0.0.0/33"],
                  ["--role", "prefill", "--token-file", token, "--tp", "2", "--handover-port", "65535"], ["--token-file", token], ["--role", "x"]):
        done = subprocess.run([BINARY, "serve", small_model, "--port", "0", *map(str, flags)], capture_output=True, text=True, timeout=30)
        assert done.returncode == 2, (flags, done.stderr)
        assert "--" in done.stderr
