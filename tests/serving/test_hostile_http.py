"""Bytes and requests that no honest client sends: an error body or a closed connection, nothing held, the next request served."""
import json
import socket
import time

import pytest

CHAT = {"model": "small", "messages": [{"role": "user", "content": "once"}], "max_tokens": 2}


def http(body, path="/v1/completions", extra=b""):
    return (f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n".encode()
            + extra + b"\r\n" + body)


def read_all(connection, seconds=20):
    connection.settimeout(seconds)
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionError:
        pass
    return received


def read_response(connection, seconds=20):
    """Status and body of one response with Content-Length."""
    connection.settimeout(seconds)
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        if not part:
            raise ConnectionError(f"closed after {received!r}")
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = int([line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")][0].split(b":")[1])
    while len(body) < length:
        body += connection.recv(65536)
    return int(head.split()[1]), body[:length]


@pytest.fixture(autouse=True)
def serves_afterwards(small):
    """After every attack: idle, no page held, and the next request is answered."""
    yield
    small.wait_idle()
    assert small.pages()["held"] == 0
    status, answer = small.post("/v1/completions", {"model": "small", "prompt": "Once upon a time", "max_tokens": 3})
    assert status == 200 and answer["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("raw", [b"\x00\x01\x02\x03\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                 b"GET / HTTP/1.1\r\nno colon here\r\n\r\n"])
def test_bytes_that_are_not_http(small, raw):
    with small.connect() as connection:
        connection.sendall(raw)
        answer = read_all(connection)
        assert answer == b"" or answer.split()[1] in (b"400", b"505", b"404")


def test_a_connection_that_says_nothing_is_not_in_the_way(small):
    idle = [small.connect() for _ in range(50)]
    assert small.get("/health")[0] == 200
    for connection in idle:
        connection.close()


def test_half_a_request_then_gone(small):
    for cut in (1, 20, 60, 100):
        with small.connect() as connection:
            connection.sendall(http(json.dumps(CHAT).encode(), "/v1/chat/completions")[:cut])
    assert small.get("/health")[0] == 200


def test_oversized_headers_are_431(small):
    with small.connect() as connection:
        try:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 2_000_000 + b"\r\n\r\n")
        except ConnectionError:
            pass
        answer = read_all(connection)
        assert answer == b"" or answer.split()[1] == b"431"


def test_an_oversized_body_is_413(small):
    with small.connect() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n")
        assert read_all(connection).split()[1] == b"413"


def test_pipelined_requests_are_answered_in_order(small):
    first = json.dumps({"model": "small", "prompt": "Once", "max_tokens": 5, "temperature": 0}).encode()
    second = json.dumps({"model": "small", "prompt": "Once", "max_tokens": 1, "temperature": 0}).encode()
    with small.connect() as connection:
        connection.sendall(http(first) + http(second) + b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = read_all(connection, 30)
    assert answer.count(b"HTTP/1.1 200") == 3
    assert answer.index(b'"completion_tokens":5') < answer.index(b'"completion_tokens":1')


def test_a_client_that_leaves_while_waiting(small):
    body = json.dumps({"model": "small", "prompt": "Once", "max_tokens": 400, "ignore_eos": True}).encode()
    for _ in range(8):
        with small.connect() as connection:
            connection.sendall(http(body))
            time.sleep(0.02)
    small.wait_idle(10)


@pytest.mark.parametrize("body", [
    b"", b"{", b"null", b"[]", b"\"text\"", b"{\"prompt\": NaN}", b"{\"prompt\": \"a\", \"temperature\": NaN}",
    b"{\"prompt\": \"a\", \"temperature\": Infinity}", b"{\"prompt\": \"a\", \"temperature\": 1e999}",
    b"{\"prompt\": \"\xff\xfe\"}", b"{\"prompt\": \"\\ud800\"}", b"[" * 100_000, b"{\"a\":" * 50_000,
    b"{\"prompt\": [1, -5]}", b"{\"prompt\": [99999999]}", b"{\"prompt\": [1.5]}", b"{\"prompt\": [[[1]]]}", b"{\"prompt\": {}}",
    b"{\"prompt\": \"a\", \"max_tokens\": -1}", b"{\"prompt\": \"a\", \"max_tokens\": 1e30}", b"{\"prompt\": \"a\", \"max_tokens\": \"5\"}",
    b"{\"prompt\": \"a\", \"n\": 1000000}", b"{\"prompt\": \"a\", \"seed\": \"x\"}", b"{\"prompt\": \"a\", \"stop\": [1]}",
    b"{\"prompt\": \"a\", \"best_of\": 2}", b"{\"prompt\": \"a\", \"suffix\": \"b\"}", b"{\"prompt\": \"a\", \"logprobs\": -3}",
    b"{\"prompt\": \"a\", \"stream\": \"yes\"}", b"{\"prompt\": \"a\", \"top_k\": -7}", b"{\"prompt\": []}", b"{\"max_tokens\": 5}",
])
def test_a_wrong_body_is_400_with_an_error_object(small, body):
    with small.connect() as connection:
        connection.sendall(http(body))
        status, answer = read_response(connection)
    assert status == 400
    error = json.loads(answer)["error"]
    assert error["message"] and error["type"] == "invalid_request_error"


def test_one_token_past_the_context_is_refused_and_the_limit_is_served(small):
    limit = small.get("/get_server_info")[1]["context_length"]
    status, answer = small.post("/v1/completions", {"model": "small", "prompt": [5] * limit, "max_tokens": 1})
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
    status, answer = small.post("/v1/completions", {"model": "small", "prompt": [5] * (limit - 1), "max_tokens": 9, "ignore_eos": True})
    assert status == 200 and answer["usage"]["completion_tokens"] == 1


def test_unknown_paths_and_methods(small):
    assert small.get("/nothing/here")[0] == 404
    assert small.request("/v1/chat/completions", method="DELETE")[0] == 405


def test_keys_guard_the_api_but_not_health(small_model, tmp_path):
    from server import Server
    keys = tmp_path / "keys"
    keys.write_text("# team keys\nalpha-key\n\nbeta-key\n")
    with Server(small_model, "--api-key-file", keys) as server:
        body = {"prompt": "a", "max_tokens": 1}
        assert server.post("/v1/completions", body)[0] == 401
        assert server.post("/v1/completions", body, headers={"Authorization": "Bearer nope"})[0] == 401
        assert server.post("/v1/completions", body, headers={"Authorization": "Bearer beta-key"})[0] == 200
        assert server.get("/health")[0] == 200
        assert server.post("/abort_request", {"rid": "x"})[0] == 401


def test_sigterm_finishes_what_runs(small_model):
    from server import Server
    import signal
    with Server(small_model) as server, server.connect() as connection:
        connection.sendall(http(json.dumps({"prompt": "Once", "max_tokens": 300, "ignore_eos": True, "stream": True}).encode()))
        connection.recv(1000)
        server.process.send_signal(signal.SIGTERM)
        rest = read_all(connection, 30)
        assert b"[DONE]" in rest
        assert server.process.wait(30) == 0


def test_an_address_in_use_is_one_sentence(small, small_model):
    import subprocess
    from server import BINARY
    run = subprocess.run([BINARY, "serve", small_model, "--host", "127.0.0.1", "--port", str(small.port)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert str(small.port) in run.stderr and "in use" in run.stderr


def test_a_name_stands_for_all_prompts_of_its_request(small):
    body = json.dumps({"prompt": ["Once", "The"], "max_tokens": 400, "n": 16, "ignore_eos": True, "rid": "both", "stream": True}).encode()
    with small.connect() as connection:
        connection.sendall(http(body))
        received = connection.recv(1000)  # it runs now
        assert small.post("/abort_request", {"rid": "both"}) == (200, {"cancelled": 1})
        while b"[DONE]" not in received:
            part = connection.recv(65536)
            assert part, received[-200:]
            received += part
    assert small.post("/abort_request", {"rid": "both"}) == (200, {"cancelled": 0})


def test_an_answers_own_id_ends_it(small):
    body = json.dumps({"prompt": ["Once", "The"], "max_tokens": 400, "n": 16, "ignore_eos": True, "stream": True}).encode()
    with small.connect() as connection:
        connection.sendall(http(body))
        received = b""
        while b'"id":"' not in received or received.count(b"\n\n") < 2:
            received += connection.recv(1000)
        name = received.split(b'"id":"', 1)[1].split(b'"', 1)[0].decode()
        assert small.post("/abort_request", {"rid": name}) == (200, {"cancelled": 1})
        while b"[DONE]" not in received:
            part = connection.recv(65536)
            assert part, received[-200:]
            received += part
    assert small.post("/abort_request", {"rid": name}) == (200, {"cancelled": 0})


def test_a_tracing_id_may_be_shared(small):
    body = json.dumps({"prompt": "Once", "max_tokens": 50, "ignore_eos": True}).encode()
    with small.connect() as first, small.connect() as second:
        for connection in (first, second):
            connection.sendall(http(body, extra=b"X-Request-Id: trace-1\r\n"))
        answers = [read_response(connection) for connection in (first, second)]
    assert [status for status, _ in answers] == [200, 200]
    assert len({json.loads(answer)["id"] for _, answer in answers}) == 2


def test_more_answers_than_the_queue_holds_are_refused_by_name(small_model):
    from server import Server
    with Server(small_model, "--max-seqs", 2, "--max-queue", 2) as server:
        status, answer = server.post("/v1/completions", {"prompt": "a", "n": 5, "max_tokens": 1})
        assert status == 400 and answer["error"]["param"] == "n"


def test_an_overloaded_server_says_when_to_come_back(small_model):
    from server import Server
    with Server(small_model, "--max-seqs", 1, "--max-queue", 1) as server, server.connect() as first, server.connect() as second:
        body = json.dumps({"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 2}).encode()
        first.sendall(http(body))
        first.recv(1000)  # both places are taken
        second.sendall(http(json.dumps({"prompt": "Once", "max_tokens": 1}).encode()))
        second.settimeout(20)
        head = second.recv(65536)
        assert head.split()[1] == b"429"
        assert b"\r\nretry-after: " in head.lower()
