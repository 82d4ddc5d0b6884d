"""The gateway in front of real workers and of servers that answer as a test tells them to."""
import json
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from fake_server import FakeServer, answer, event, stream, whole
from gateway import Gateway
from server import BINARY, Server

BODY = {"model": "small", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def second(small_model):
    with Server(small_model, "--served-model-name", "small") as server:
        yield server


@pytest.fixture(scope="module")
def gateway(small, second):
    with Gateway(small, second, flags=["--alias", "tiny=small"]) as server:
        yield server


def streamed(server, body, headers=None, path="/v1/completions"):
    """The answer's events and its head."""
    with server.connect() as connection:
        connection.settimeout(120)
        data = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
        extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n{extra}"
                           f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    head, _, rest = received.partition(b"\r\n\r\n")
    text = b""
    while rest:  # chunked
        size, _, rest = rest.partition(b"\r\n")
        text, rest = text + rest[:int(size, 16)], rest[int(size, 16) + 2:]
    return head.decode(), [part[len("data: "):] for part in text.decode().split("\n\n") if part]


def text_of(events):
    return "".join(choice.get("text", "") for one in events if one != "[DONE]" for choice in json.loads(one).get("choices", []))


def test_answers_are_the_workers_own(gateway, small):
    direct = small.post("/v1/completions", BODY)[1]
    through = gateway.post("/v1/completions", BODY)[1]
    assert through["choices"] == direct["choices"]
    assert {**through["usage"], "prompt_tokens_details": None} == {**direct["usage"], "prompt_tokens_details": None}


def test_streams_are_the_workers_own(gateway, small):
    _, events = streamed(gateway, BODY)
    assert events[-1] == "[DONE]"
    assert text_of(events) == small.post("/v1/completions", BODY)[1]["choices"][0]["text"]
    assert json.loads(events[-2])["usage"]["completion_tokens"] == 12
    assert not any("shoal" in one.replace('"shoal', "") for one in events), "what workers tell gateways is not for clients"


def test_models_are_merged_and_aliases_answer(gateway):
    names = [model["id"] for model in gateway.get("/v1/models")[1]["data"]]
    assert sorted(names) == ["small", "tiny"]
    assert gateway.get("/v1/models/tiny")[1]["max_model_len"] > 0
    assert gateway.get("/v1/models/none")[0] == 404
    assert gateway.post("/v1/completions", {**BODY, "model": "tiny"})[0] == 200


def test_what_the_worker_refuses_is_refused_in_its_words(gateway, small):
    wrong = {**BODY, "temperature": 9}
    assert gateway.post("/v1/completions", wrong) == small.post("/v1/completions", wrong)


@pytest.mark.parametrize("body, status, code", [
    ({**BODY, "model": "other"}, 404, "model_not_found"), (b"{", 400, None), ({**BODY, "shoal_resume": []}, 400, None)])
def test_what_the_gateway_refuses(gateway, body, status, code):
    got, answered = gateway.post("/v1/completions", body)
    assert (got, answered["error"]["code"]) == (status, code)


def test_other_routes_go_through(gateway):
    assert gateway.post("/tokenize", {"model": "small", "prompt": "Once"})[1]["count"] > 0
    assert gateway.get("/v1/none")[0] == 405
    assert gateway.get("/none")[0] == 404


def test_the_route_is_told_on_demand(gateway):
    head, _ = streamed(gateway, BODY, {"X-Shoal-Route": "1"})
    assert re.search(r"^X-Shoal-Route: worker=http://127.0.0.1:\d+; reason=\w+; attempts=1; class=chat; ", head, re.M)
    assert "X-Shoal-Route" not in streamed(gateway, BODY)[0]


def test_the_body_goes_on_as_it_came_and_headers_with_it():
    raw = b'{"model" : "fake-model",\t"prompt":"\\u00e9", "unknown":{"a":[1, 2.50]},"x":"tiny", "stream":false}'
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    seen = []

    def record(connection):
        connection.sendall(whole(200, {"choices": []}))

    with FakeServer(record) as fake:
        original = FakeServer._read

        def read(connection):
            head, body = original(connection)
            seen.append((head, body))
            return head, body
        fake._read = read
        with Gateway(fake.url, flags=["--alias", "tiny=fake-model"]) as gateway:
            head = {"X-Custom": "kept", "traceparent": trace, "X-Request-Id": "mine", "Content-Type": "application/json"}
            assert gateway.post("/v1/completions", raw, headers=head)[0] == 200
            assert gateway.post("/v1/completions", raw.replace(b'"fake-model"', b'"tiny"'), headers=head)[0] == 200
    posts = [(head, body) for head, body in seen if head.startswith("POST")]
    assert [body for _, body in posts] == [raw, raw], "an alias becomes the model's name and nothing else changes"
    head = posts[0][0].lower()
    assert "x-custom: kept" in head and "x-request-id: mine" in head
    assert re.search(r"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-(?!00f067aa0ba902b7)[0-9a-f]{16}-01", head)
    assert "x-shoal-inner" not in head, "a plain engine is not asked for ids"


def test_events_are_forwarded_as_they_come():
    second = threading.Event()

    def slowly(connection):
        connection.sendall(stream(event("one")))
        assert second.wait(20), "the first event never came through"
        connection.sendall(event("two") + b"data: [DONE]\n\n")

    with FakeServer(slowly) as fake, Gateway(fake.url) as gateway, gateway.connect() as client:
        body = json.dumps({"model": "fake-model", "messages": [], "stream": True}).encode()
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        seen = b""
        while b"one" not in seen:
            seen += client.recv(65536)
        second.set()
        while b"[DONE]" not in seen:
            seen += client.recv(65536)


def test_a_client_that_leaves_ends_the_work(gateway, small, second):
    for worker in (small, second):
        worker.wait_idle()
    with gateway.stream("Once", tokens=450):
        gateway.wait_until(lambda: any(server.get("/get_server_info")[1]["num_requests_running"] for server in (small, second)))
    for worker in (small, second):
        worker.wait_idle(10)
    gateway.wait_until(lambda: gateway.metric("shoal_gateway_requests_running") == 0)


def test_a_plain_engine_that_breaks_off_ends_with_an_error_event():
    with FakeServer(stream(event("half"))) as fake, Gateway(fake.url) as gateway:
        fake.answers = [stream(event("half"), head=b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999\r\n\r\n")]
        _, events = streamed(gateway, {"model": "fake-model", "messages": []}, path="/v1/chat/completions")
        assert json.loads(events[0])["choices"][0]["delta"]["content"] == "half"
        assert "no token ids" in json.loads(events[1])["error"]["message"]
        assert events[2] == "[DONE]"


def test_a_refusal_goes_to_another_worker():
    with FakeServer(whole(503, {"error": {"message": "busy"}})) as bad, FakeServer(answer("well")) as good:
        with Gateway(bad.url, good.url, flags=["--policy", "round_robin"]) as gateway:
            for _ in range(4):
                _, events = streamed(gateway, {"model": "fake-model", "messages": []}, path="/v1/chat/completions")
                assert json.loads(events[0])["choices"][0]["delta"]["content"] == "well"
            assert gateway.metric("shoal_gateway_retries_total") >= 1


def test_garbage_and_silence_of_workers(small):
    with FakeServer(b"this is no HTTP at all\r\n\r\n") as garbage, Gateway(garbage.url, small.url) as gateway:
        for _ in range(4):
            status, body = gateway.post("/v1/completions", {**BODY, "model": "small"})
            assert status == 200, body


def test_a_full_queue_is_429_with_a_time_to_come_back():
    hold = threading.Event()

    def wait(connection):
        hold.wait(20)
        connection.sendall(whole(200, {"choices": []}))

    with FakeServer(wait) as fake, Gateway(fake.url, flags=["--max-running", 1, "--max-queue", 1]) as gateway:
        ask = lambda: results.append(gateway.post("/v1/completions", {"model": "fake-model", "prompt": "x"})[0])  # noqa: E731
        results, threads = [], []
        for _ in range(3):
            threads.append(threading.Thread(target=ask))
            threads[-1].start()
            time.sleep(0.3 if len(threads) < 3 else 0)
        gateway.wait_until(lambda: 429 in results)
        hold.set()
        for thread in threads:
            thread.join(20)
        assert sorted(results) == [200, 200, 429]
        received, ended = gateway.ended()
        assert received == sum(ended.values()) == 3 and ended["overloaded"] == 1


@pytest.mark.parametrize("named", [{"rid": "mine"}, {"abort_all": True}])
def test_an_abort_ends_what_still_waits_here(named):
    hold = threading.Event()

    def wait(connection):
        hold.wait(20)
        connection.sendall(whole(200, {"choices": []}))

    with FakeServer(wait) as fake, Gateway(fake.url, flags=["--max-running", 1]) as gateway:
        results = {}

        def ask(rid):
            results[rid] = gateway.post("/v1/completions", {"model": "fake-model", "prompt": "x", "rid": rid})
        threads = [threading.Thread(target=ask, args=(rid,)) for rid in ("other", "mine")]
        threads[0].start()
        gateway.wait_until(lambda: gateway.metric("shoal_gateway_requests_running") == 1)
        threads[1].start()
        gateway.wait_until(lambda: gateway.metric("shoal_gateway_requests_waiting") == 1)
        assert gateway.post("/abort_request", named)[1] == {"cancelled": 1}
        threads[1].join(20)
        assert results["mine"][0] == 499 and "aborted" in results["mine"][1]["error"]["message"]
        hold.set()
        threads[0].join(20)
        assert results["other"][0] == 200, "a plain engine knows no aborts"


def test_workers_come_and_go(small, second):
    with Gateway(small.url) as gateway:
        assert gateway.post("/workers", {"url": second.url})[1]["source"] == "admin"
        gateway.wait_for_workers(2)
        assert gateway.post("/workers/drain", {"url": small.url})[1]["draining"] is True
        assert gateway.workers()[small.url]["available"] is False
        assert gateway.post("/workers/drain", {"url": small.url, "drain": False})[1]["draining"] is False
        status, gone = gateway.request(f"/workers?url={second.url}", method="DELETE")
        assert (status, gone["status"]) == (200, "removed")
        assert list(gateway.workers()) == [small.url]
        assert gateway.post("/workers", {"url": "ftp://x"})[0] == 400
        assert gateway.request("/workers?url=http://127.0.0.1:1", method="DELETE")[0] == 404


def test_a_worker_that_drains_finishes_its_streams(small):
    with Gateway(small.url) as gateway:
        with gateway.stream("Once", tokens=300) as running:
            status, gone = gateway.request(f"/workers?url={small.url}", method="DELETE")
            assert (status, gone["status"]) == (202, "draining")
            while b"[DONE]" not in running.seen:
                data = running.client.recv(65536)
                assert data, "the stream was cut"
                running.seen += data
        gateway.wait_until(lambda: not gateway.workers())
        assert gateway.get("/health")[0] == 503


def test_a_watched_file(small, tmp_path):
    listed = tmp_path / "workers"
    listed.write_text(f"# ours\n{small.url}\n")
    with Gateway(flags=["--worker-file", listed]) as gateway:
        gateway.wait_for_workers(1)
        listed.write_text("not a url at all://\n")
        time.sleep(1.5)
        assert list(gateway.workers()) == [small.url], "a broken file changes nothing"
        listed.write_text("")
        gateway.wait_until(lambda: not gateway.workers())


def test_sigterm_finishes_streams(small):
    gateway = Gateway(small.url)
    with gateway.stream("Once", tokens=300) as running:
        gateway.process.send_signal(signal.SIGTERM)
        while b"[DONE]" not in running.seen:
            data = running.client.recv(65536)
            assert data, "the stream was cut"
            running.seen += data
    assert gateway.process.wait(20) == 0


def test_keys_tenants_and_limits(small, tmp_path):
    keys = tmp_path / "keys.toml"
    keys.write_text('[[keys]]\nkey = "key-of-alice"\ntenant = "alice"\n'
                    '[[keys]]\nkey = "key-of-bob-1"\ntenant = "bob"\nmodels = ["other"]\n'
                    '[[keys]]\nkey = "key-of-old-1"\ntenant = "old"\nexpires = 2020-01-01\n')
    with Gateway(small.url, flags=["--key-file", keys]) as gateway:
        bearer = lambda key: {"Authorization": f"Bearer {key}"}  # noqa: E731
        assert gateway.post("/v1/completions", BODY)[0] == 401
        assert gateway.post("/v1/completions", BODY, headers=bearer("key-of-nobody"))[0] == 401
        assert gateway.post("/v1/completions", BODY, headers=bearer("key-of-old-1"))[0] == 401
        assert gateway.post("/v1/completions", BODY, headers=bearer("key-of-alice"))[0] == 200
        assert gateway.post("/v1/completions", BODY, headers=bearer("key-of-bob-1"))[0] == 404
        assert gateway.get("/v1/models", headers=bearer("key-of-bob-1"))[1]["data"] == []
    assert "Once upon" not in gateway.output() and "key-of-alice" not in gateway.output()


def test_tls_in_and_out(small_model, certificates):
    with Server(small_model, "--served-model-name", "small", certificates=certificates) as worker:
        with Gateway(worker.url, flags=["--worker-ca-file", certificates / "server.pem"], certificates=certificates) as gateway:
            assert gateway.url.startswith("https://")
            assert gateway.post("/v1/completions", BODY)[0] == 200


def test_the_admin_api_has_its_own_port(small):
    with Gateway(flags=["--worker", small.url, "--admin-port", "0"]) as gateway:
        assert gateway.get("/workers")[0] == 404
        admin = re.search(r"^admin API on (\S+)", gateway.output(), re.M)[1]
        users, gateway.url = gateway.url, admin
        gateway.wait_for_workers(1)
        assert gateway.post("/v1/completions", BODY)[0] == 404
        gateway.url = users
        assert gateway.post("/v1/completions", BODY)[0] == 200


@pytest.mark.parametrize("given, wanted", [("tls-key", "tls-cert"), ("tls-cert", "tls-key"), ("admin-host", "admin-port")])
def test_one_of_a_pair_is_refused_wherever_it_stands(given, wanted, tmp_path):
    config = tmp_path / "gateway.toml"
    config.write_text(f'worker = ["http://127.0.0.1:1"]\n{given} = "127.0.0.1"\n')
    for flags in (["--config", config], ["--worker", "http://127.0.0.1:1", f"--{given}", "127.0.0.1"]):
        ended = subprocess.run([BINARY, "gateway", "--port", "0", *flags], capture_output=True, text=True, timeout=20)
        assert ended.returncode == 2 and f"--{given} requires --{wanted}" in ended.stderr, ended


def test_two_models_in_one_body_are_refused(gateway):
    status, body = gateway.post("/v1/completions", b'{"model":"small","prompt":"a","model":"other"}')
    assert status == 400 and body["error"]["param"] == "model"


def test_a_config_file_is_flags(small, tmp_path):
    config = tmp_path / "gateway.toml"
    config.write_text(f'worker = ["{small.url}"]\nmax-queue = 7\n[alias]\ntiny = "small"\n')
    with Gateway(flags=["--config", config]) as gateway:
        gateway.wait_for_workers(1)
        assert gateway.post("/v1/completions", {**BODY, "model": "tiny"})[0] == 200
    config.write_text("max-queues = 7\n")
    with pytest.raises(RuntimeError, match=r"gateway.toml:1: there is no flag --max-queues"):
        Gateway(flags=["--config", config])


def test_a_slow_reader_holds_little(small):
    with Gateway(small.url) as gateway, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", gateway.port))
        before = gateway.rss_anon_kib()
        body = json.dumps({**BODY, "max_tokens": 450, "n": 32, "stream": True, "logprobs": 5}).encode()
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        gateway.wait_until(lambda: gateway.metric("shoal_gateway_requests_running") == 1)
        time.sleep(3)
        assert gateway.rss_anon_kib() - before < 4096
    small.wait_idle(20)
