"""What clients of the gateway see when workers die, hang, lie and come back: nothing, where another can go on."""
import hmac
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from gateway import Gateway
from server import BINARY, Server
from test_gateway import streamed, text_of


class Fakes:
    """One `shoal fake-worker` process."""

    def __init__(self, *flags, ports="0x1"):
        self.process = subprocess.Popen([BINARY, "fake-worker", "--ports", ports, *map(str, flags)], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        lines = iter(self.process.stdout.readline, "")
        self.urls = []
        for line in lines:
            if line.startswith("listening"):
                self.urls = self.urls or [line.split()[-1]]  # ports that it was told are not listed
                break
            self.urls.append(f"http://127.0.0.1:{line.strip()}")
        assert self.urls, "the fake worker did not start"
        self.url = self.urls[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


FAKE = {"model": "fake", "prompt": "x" * 400, "max_tokens": 60, "seed": 7}
FAST = ("--decode-ms", 15, "--prefill-tok-s", 1e6)


def streams_at_once(gateway, bodies, during, path="/v1/completions"):
    """Their events, while `during` happens."""
    results = [None] * len(bodies)

    def ask(i):
        results[i] = streamed(gateway, bodies[i], path=path)[1]
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    during()
    for thread in threads:
        thread.join(60)
    return results


def check_stream(events, tokens):
    assert events[-1] == "[DONE]" and "error" not in json.loads(events[-2]), events[-3:]
    chunks = [json.loads(one) for one in events[:-1]]
    assert len({chunk["id"] for chunk in chunks}) == 1, "the answer keeps its name"
    assert [bool(chunk.get("usage")) for chunk in chunks].count(True) == 1, "usage comes once"
    assert chunks[-1]["usage"]["completion_tokens"] == tokens
    finishes = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert finishes == ["length"], "one end, once"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_streams_go_on_when_a_worker_goes(number):
    with Fakes(*FAST) as a, Fakes(*FAST) as b:
        with Gateway(a.url, b.url) as gateway:
            want = text_of(streamed(gateway, FAKE)[1])
            assert len(want) > 100

            def harm():
                gateway.wait_until(lambda: all(w["in_flight"] >= 5 for w in gateway.workers().values()))
                time.sleep(0.3)
                a.process.send_signal(number)
            for events in streams_at_once(gateway, [FAKE] * 20, harm):
                assert text_of(events) == want
                check_stream(events, 60)
            received, ended = gateway.ended()
            assert received == ended["answered"] == 21
            assert gateway.metric('shoal_gateway_continuations_total{result="failed"}') == 0
            assert gateway.metric('shoal_gateway_continuations_total{result="continued"}') >= 5
            gateway.wait_until(lambda: all(w["in_flight"] == 0 and w["reserved_tokens"] == 0 for w in gateway.workers().values()))


def test_what_is_not_streamed_is_asked_again():
    with Fakes(*FAST) as a, Fakes(*FAST) as b, Gateway(a.url, b.url) as gateway:
        want = gateway.post("/v1/completions", FAKE)[1]["choices"]
        results = []
        threads = [threading.Thread(target=lambda: results.append(gateway.post("/v1/completions", FAKE))) for _ in range(10)]
        for thread in threads:
            thread.start()
        gateway.wait_until(lambda: all(w["in_flight"] >= 3 for w in gateway.workers().values()))
        a.process.kill()
        for thread in threads:
            thread.join(60)
        assert [(status, body["choices"]) for status, body in results] == [(200, want)] * 10


def test_a_plain_engine_that_dies_gets_an_honest_error():
    with Fakes(*FAST, "--plain") as a, Gateway(a.url) as gateway:
        events = streams_at_once(gateway, [FAKE], lambda: (time.sleep(0.5), a.process.kill()))[0]
        assert "no token ids" in json.loads(events[-2])["error"]["message"] and events[-1] == "[DONE]"
        assert gateway.ended()[1]["failed"] == 1


@pytest.mark.parametrize("harm", ["cut", "garbage", "repeat-usage", "lie-idle", "refuse", "stall"])
def test_a_worker_that_does_wrong_harms_nobody(harm):
    with Fakes(*FAST, "--harm", harm) as bad, Fakes(*FAST) as good:
        with Gateway(bad.url, good.url, flags=["--stall-seconds", 1, "--policy", "round_robin", "--attempts", 8]) as gateway:
            want = text_of(streamed(gateway, FAKE)[1])
            for events in streams_at_once(gateway, [FAKE] * 6, lambda: None):
                assert text_of(events) == want
                check_stream(events, 60)
            received, ended = gateway.ended()
            assert received == ended["answered"] == 7


def test_a_plain_engine_answers_what_a_worker_has_refused():
    with Fakes(*FAST, "--harm", "refuse") as bad, Fakes(*FAST, "--plain") as good:
        with Gateway(bad.url, good.url, flags=["--policy", "round_robin", "--attempts", 8]) as gateway:
            want = text_of(streamed(gateway, FAKE)[1])
            assert len(want) > 100
            for _ in range(4):
                events = streamed(gateway, FAKE)[1]
                assert text_of(events) == want and events[-1] == "[DONE]"
            assert gateway.ended()[1]["answered"] == 5 and gateway.workers()[bad.url]["requests"] > 0


def test_a_worker_that_flaps():
    with Fakes(*FAST) as steady, Fakes(*FAST) as flapping, Gateway(steady.url, flapping.url) as gateway:
        want = text_of(streamed(gateway, FAKE)[1])
        stop = threading.Event()

        def flap():
            for _ in range(4):
                flapping.process.send_signal(signal.SIGSTOP)
                time.sleep(2.2)
                flapping.process.send_signal(signal.SIGCONT)
                time.sleep(0.7)
            stop.set()
        thread = threading.Thread(target=flap)
        thread.start()
        asked = 0
        while not stop.is_set():
            for events in streams_at_once(gateway, [FAKE] * 4, lambda: None):
                assert text_of(events) == want
            asked += 4
        thread.join()
        assert asked >= 8 and gateway.ended()[1]["answered"] == asked + 1


@pytest.fixture(scope="module")
def pair(small_model):
    """Two real workers whose answers do not depend on the company they are in."""
    flags = ("--served-model-name", "small", "--deterministic", "--threads", 1)
    with Server(small_model, *flags) as a, Server(small_model, *flags) as b:
        yield a, b


LONG = {"model": "small", "prompt": "Once upon a time there was a girl", "max_tokens": 200, "ignore_eos": True, "seed": 11}
CASES = {
    "sampled": {"temperature": 0.9, "top_p": 0.9},
    "penalties": {"temperature": 0.8, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.4},
    "choices": {"temperature": 1.0, "n": 4},
    "prompts": {"temperature": 1.0, "n": 2, "prompt": ["Once upon a time", "The dog"], "max_tokens": 150},
    "logprobs": {"temperature": 1.0, "logprobs": 3},
    "stop": {"temperature": 0.0, "stop": ["zzz", "and they"], "max_tokens": 250},
    "min_tokens": {"temperature": 0.7, "min_tokens": 100, "stop": ["the"]},
}


def merged(events):
    """Text, logprobs and finish of each choice, and the usage, of a stream."""
    choices, usage = {}, None
    for one in events[:-1]:
        chunk = json.loads(one)
        assert "error" not in chunk, chunk
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            state = choices.setdefault(choice["index"], {"text": "", "tokens": [], "offsets": [], "values": [], "finish": None, "stop": None})
            state["text"] += choice.get("text") or ""
            if choice.get("logprobs"):
                state["tokens"] += choice["logprobs"]["tokens"]
                state["offsets"] += choice["logprobs"]["text_offset"]
                state["values"] += choice["logprobs"]["token_logprobs"]
            state["finish"] = choice["finish_reason"] or state["finish"]
            state["stop"] = choice.get("matched_stop") or state["stop"]
    usage = {key: usage[key] for key in ("prompt_tokens", "completion_tokens")}
    return choices, usage


@pytest.mark.parametrize("case", CASES)
def test_a_real_answer_goes_on_as_it_would_have(pair, case):
    body = {**LONG, **CASES[case]}
    want = merged(streamed(pair[0], body)[1])
    with Gateway(pair[0].url, pair[1].url) as gateway:
        for round_ in range(3):
            client = streaming(gateway, body)
            while len(client.seen) < 4000 * (round_ + 1) and not client.ended:
                client.receive()
            # From where the stream is now, everything goes elsewhere: the operator takes the worker away.
            for url in [url for url, worker in gateway.workers().items() if worker["in_flight"]]:
                gateway.request(f"/workers?url={url}&now=true", method="DELETE")
            while not client.ended:
                client.receive()
            assert merged(client.events()) == want
            gateway.post("/workers", {"url": pair[0].url})
            gateway.post("/workers", {"url": pair[1].url})
            gateway.wait_for_workers(2)
        assert gateway.metric('shoal_gateway_continuations_total{result="failed"}') == 0
        assert gateway.metric('shoal_gateway_continuations_total{result="continued"}') > 0
    for worker in pair:
        worker.wait_idle()


class streaming:
    """A stream that is read piece by piece."""

    def __init__(self, server, body, path="/v1/completions"):
        data = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
        self.client = server.connect()
        self.client.sendall(f"POST {path} HTTP/1.0\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        self.seen, self.ended = b"", False

    def receive(self):
        data = self.client.recv(2000)
        self.seen += data
        if not data:
            self.ended = True
            self.client.close()

    def events(self):
        text = self.seen.partition(b"\r\n\r\n")[2].decode()
        return [part[len("data: "):] for part in text.split("\n\n") if part]


def test_a_resumed_answer_that_had_ended_says_so(pair):
    """All tokens were out, their end was not: nothing is computed, the end is said."""
    body = {**LONG, "max_tokens": 5, "temperature": 0}
    ids = token_ids(pair[0], body)
    assert len(ids) == 5
    want = merged(streamed(pair[0], body)[1])
    choices, usage = merged(streamed(pair[1], {**body, "shoal_resume": [{"choice": 0, "output_ids": ids, "emitted_bytes": 0}]})[1])
    assert choices[0]["text"] == want[0][0]["text"] and choices[0]["finish"] == "length" and usage == want[1]
    two = {**body, "n": 2, "shoal_resume": [{"choice": 0, "output_ids": ids, "emitted_bytes": 1, "finished": True},
                                           {"choice": 1, "output_ids": ids[:2], "emitted_bytes": 0, "finished": False}]}
    choices, usage = merged(streamed(pair[1], two)[1])
    assert list(choices) == [1] and choices[1]["text"] == want[0][0]["text"] and usage["completion_tokens"] == 10


@pytest.mark.parametrize("resume, part", [
    ([], "an entry for each of the 1 choices"), ({}, "must be a list"), ([{"choice": 1}], "choice"),
    ([{"choice": 0, "output_ids": [999999]}], "a token that is none"), ([{"choice": 0, "output_ids": [5], "emitted_bytes": 500}], "bytes have been sent"),
    ([{"choice": 0, "output_ids": [5] * 400}], "more tokens")])
def test_a_resume_that_cannot_be_is_refused(pair, resume, part):
    status, body = pair[0].post("/v1/completions", {**LONG, "shoal_resume": resume})
    assert status == 400 and part in body["error"]["message"], body
    pair[0].wait_idle()


def token_ids(server, body):
    """Of the answer's first choice, from the notes that gateways get."""
    with server.connect() as connection:
        data = json.dumps({**body, "stream": True}).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.0\r\nX-Shoal-Inner: 1\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    notes = [json.loads(line) for line in re.findall(rb"^: shoal (\{.*\})$", received, re.M)]
    return [one for note in notes for one in note.get("token_ids", [])]


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "cluster.token"
    file.write_text("a-token-of-the-cluster\n")
    file.chmod(0o600)
    return file


def test_workers_register_themselves(small_model, token):
    with Gateway(flags=["--token-file", token]) as gateway:
        worker = Server(small_model, "--served-model-name", "small", "--gateway", gateway.url, "--token-file", token)
        gateway.wait_for_workers(1)
        assert gateway.workers()[worker.url]["source"] == "registered"
        assert gateway.post("/v1/completions", {**LONG, "max_tokens": 4})[0] == 200
        assert worker.stop() == 0
        gateway.wait_until(lambda: not gateway.workers(), 5)
        worker = Server(small_model, "--served-model-name", "small", "--gateway", gateway.url, "--token-file", token)
        gateway.wait_for_workers(1)
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
        gateway.wait_until(lambda: gateway.workers()[worker.url]["health"] == "down", 5)


def test_a_request_waits_for_a_registered_worker_that_is_started_anew(token):
    """Its lease has not run out when its port refuses already: nobody is tried five times in a moment."""
    flags = (*FAST, "--token-file", token)
    with Gateway(flags=["--token-file", token, "--lease-seconds", 30]) as gateway:
        with Fakes(*flags, "--gateway", gateway.url) as worker:
            gateway.wait_for_workers(1)
            want = text_of(streamed(gateway, FAKE)[1])

            def harm():
                gateway.wait_until(lambda: gateway.workers()[worker.url]["in_flight"] == 3)
                worker.process.kill()
                worker.process.wait()
                time.sleep(1)
                assert gateway.metric("shoal_gateway_retries_total") <= 6, "once for what was lost, once to find nobody there"
                again.append(Fakes(*flags, "--gateway", gateway.url))
            again = []
            try:
                for events in streams_at_once(gateway, [FAKE] * 3, harm):
                    assert text_of(events) == want
                    check_stream(events, 60)
            finally:
                for process in again:
                    process.__exit__()


def test_a_registered_worker_that_is_taken_away_stays_away(token):
    with Gateway(flags=["--token-file", token]) as gateway:
        with Fakes(*FAST, "--token-file", token, "--gateway", gateway.url) as worker:
            gateway.wait_for_workers(1)
            assert gateway.request(f"/workers?url={worker.url}", method="DELETE")[0] == 200
            time.sleep(1.5)  # three of its reports
            assert gateway.workers() == {}
            gateway.post("/workers", {"url": worker.url})
            gateway.wait_for_workers(1)


@pytest.mark.parametrize("policy", ["shortest_queue", "power_of_two"])
def test_equal_workers_get_equal_shares(policy):
    with Fakes(*FAST, ports="0x4") as fakes, Gateway(*fakes.urls, flags=["--policy", policy]) as gateway:
        for _ in range(4):
            streams_at_once(gateway, [{**FAKE, "max_tokens": 20}] * 20, lambda: None)
        shares = sorted(worker["requests"] for worker in gateway.workers().values())
        assert sum(shares) == 80 and shares[0] >= 10, shares


def test_a_stranger_cannot_register(small, token):
    report = {"url": small.url, "instance": "i", "protocol": 1, "models": ["small"], "sequence": 1}
    with Gateway(flags=["--token-file", token]) as gateway:
        assert gateway.post("/workers", report, headers={"Authorization": "Bearer another-token-here"})[0] == 401
        for name, value in (("Origin", "http://a.page"), ("X-Forwarded-For", "10.0.0.9"), ("Forwarded", "for=10.0.0.9")):
            assert gateway.post("/workers", report, headers={name: value})[0] == 403, "from this machine, for somebody else"
        assert gateway.workers() == {}
        with gateway.connect() as connection:
            connection.sendall(b"OPTIONS /workers HTTP/1.0\r\nOrigin: http://a.page\r\n\r\n")
            assert b"access-control" not in connection.recv(65536).lower()
        assert gateway.post("/workers", report)[0] == 200
        assert gateway.workers()[small.url]["source"] == "admin", "from this machine it is an operator's word"
    admin = token.parent / "admin"
    admin.write_text("the-admins-key\n")
    with Gateway(flags=["--token-file", token, "--admin-key-file", admin]) as gateway:
        assert gateway.post("/workers", report, headers={"Authorization": "Bearer another-token-here"})[0] == 401
        assert gateway.post("/workers", report)[0] == 401
        assert gateway.get("/workers", headers={"Authorization": "Bearer a-token-of-the-cluster"})[0] == 401
        assert gateway.post("/workers", report, headers={"Authorization": "Bearer a-token-of-the-cluster"})[0] == 401, "never the token itself"
        key = hmac.new(b"a-token-of-the-cluster", b"shoal gateway registration", "sha256").hexdigest()
        head = {"Authorization": f"Bearer {key}"}
        assert gateway.get("/workers", headers=head)[0] == 401, "it registers, and that is all"
        for wrong in ({**report, "protocol": 2}, {**report, "free_pages": -1}, {**report, "url": ""}, {"url": "http://x"}):
            assert gateway.post("/workers", wrong, headers=head)[0] == 400, wrong
        assert gateway.get("/workers", headers={"Authorization": "Bearer the-admins-key"})[1]["workers"] == []


def test_a_thousand_idle_connections_are_no_burden(small):
    with Gateway(small.url) as gateway:
        idle = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(1000)]
        assert gateway.post("/v1/completions", {**LONG, "max_tokens": 4})[0] == 200
        for connection in idle:
            connection.close()
