"""The gateway in front of prefill and decode workers: real ones, ones without a model, and plain engines with SGLang's fields."""
import json
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fake_server import FakeServer, answer, event, stream, whole
from gateway import Gateway
from pair import Pair, answers, body_of
from server import Server
from test_gateway import streamed, text_of
from test_gateway_resilience import CASES, FAKE, FAST, LONG, Fakes, check_stream, merged, streaming, streams_at_once

BODY = {"model": "small", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
NODES = ("prefill", "decode")


class Workers:
    """Two prefill and two decode workers whose answers do not depend on the company they are in, behind one gateway."""

    def __init__(self, model, token, name="small", flags=(), gateway=()):
        flags = ("--served-model-name", name, "--deterministic", "--token-file", token, "--threads", 1, *flags)
        self.prefill = [Server(model, *flags, "--role", "prefill", "--bootstrap-port", 0) for _ in range(2)]
        self.decode = [Server(model, *flags, "--role", "decode") for _ in range(2)]
        self.gateway = Gateway(prefill=self.prefill, decode=self.decode, flags=gateway)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (self.gateway, *self.decode, *self.prefill):
            process.__exit__()

    def all(self):
        return [*self.prefill, *self.decode]

    def wait_idle(self, seconds=6):
        """Until nobody has a request, a held page or an open room, and the gateway nothing reserved."""
        for worker in self.all():
            wait_idle(worker, seconds)
        self.gateway.wait_until(lambda: all(worker["in_flight"] == 0 and worker["reserved_tokens"] == 0
                                            for worker in self.gateway.workers().values()), seconds)


def wait_idle(worker, seconds=6):
    deadline = time.monotonic() + seconds
    while True:
        info = worker.get("/get_server_info")[1]
        busy = info["num_requests_running"] + info["num_requests_waiting"] + sum(kv["held"] for kv in info["kv_pages"])
        busy += sum(info["rooms"][state] for state in ("bootstrapping", "waiting", "transferring"))
        if busy == 0:
            return
        assert time.monotonic() < deadline, info
        time.sleep(0.02)


@pytest.fixture(scope="module")
def workers(small_model, token):
    with Workers(small_model, token) as workers:
        yield workers


@pytest.mark.parametrize("case", CASES)
def test_answers_and_streams_are_one_servers(workers, alone, case):
    body = {**LONG, "max_tokens": 110, **CASES[case]}
    assert answers_of(workers.gateway.post("/v1/completions", body)) == answers_of(alone.post("/v1/completions", body))
    assert merged(streamed(workers.gateway, body)[1]) == merged(streamed(alone, body)[1])
    workers.wait_idle()


def answers_of(response):
    status, body = response
    assert status == 200, body
    usage = {key: body["usage"][key] for key in ("prompt_tokens", "completion_tokens")}
    return [{key: choice[key] for key in ("text", "finish_reason", "logprobs")} for choice in body["choices"]], usage


@pytest.mark.parametrize("more", [{"max_tokens": 1}, {"max_tokens": 2, "stop": ["time"]}, {"echo": True}], ids=["first", "short", "echo"])
def test_short_answers(workers, alone, more):
    body = {**BODY, **more}
    assert answers_of(workers.gateway.post("/v1/completions", body)) == answers_of(alone.post("/v1/completions", body))
    assert text_of(streamed(workers.gateway, body)[1]) == text_of(streamed(alone, body)[1])


def test_what_two_workers_cannot_answer_one_does(workers, alone):
    body = {**BODY, "echo": True, "logprobs": 2, "max_tokens": 3}
    assert answers_of(workers.gateway.post("/v1/completions", body)) == answers_of(alone.post("/v1/completions", body))
    head, _ = streamed(workers.gateway, body, {"X-Shoal-Route": "1"})
    assert "worker=" in head and "prefill=" not in head
    assert workers.gateway.post("/tokenize", {"model": "small", "prompt": "Once"})[1]["count"] > 0


def test_cached_tokens_are_the_prefill_workers(small_model, token):
    """They come warm from there; the decode worker has none of the prompt when the first answer comes."""
    with Pair(small_model, token) as pair, Gateway(prefill=[pair.prefill], decode=[pair.decode]) as gateway:
        body = {**BODY, "prompt": "The dog and the cat " * 20, "max_tokens": 4}
        first = gateway.post("/v1/completions", body)[1]["usage"]
        second = json.loads(streamed(gateway, body)[1][-2])["usage"]
        assert first["prompt_tokens_details"]["cached_tokens"] == 0
        assert second["prompt_tokens_details"]["cached_tokens"] >= 32
        assert second["prompt_tokens"] == first["prompt_tokens"]


def test_the_route_and_the_metrics_name_both(workers):
    head, _ = streamed(workers.gateway, BODY, {"X-Shoal-Route": "1"})
    found = re.search(r"^X-Shoal-Route: prefill=(http://\S+); decode=(http://\S+); reason=\w+; attempts=1; ", head, re.M)
    assert found, head
    assert found[1] in {worker.url for worker in workers.prefill} and found[2] in {worker.url for worker in workers.decode}
    for url in found.groups():
        assert workers.gateway.metric(f'shoal_gateway_worker_requests_total{{worker="{url}"}}') >= 1
    assert workers.gateway.metric("shoal_gateway_handover_seconds_count") >= 1
    roles = [worker["role"] for worker in workers.gateway.workers().values()]
    assert sorted(roles) == ["decode", "decode", "prefill", "prefill"]


def test_many_at_once_share_the_workers(workers, alone):
    bodies = [body_of(f"{i} times " * (3 + 5 * i % 40), 5 + i % 30, seed=i) for i in range(40)]
    with ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda body: answers(workers.gateway.post("/v1/completions", body)[1]), bodies))
        expected = list(pool.map(lambda body: answers(alone.post("/v1/completions", body)[1]), bodies))
    assert got == expected
    workers.wait_idle()
    assert all(worker["requests"] > 0 for worker in workers.gateway.workers().values())
    received, ended = workers.gateway.ended()
    assert received == sum(ended.values()) and ended["failed"] == 0


def test_no_byte_of_kv_goes_through_the_gateway(small_model, token):
    """What the prefill worker has sent as KV, its own ledger says; the gateway's sockets have carried far less."""
    with Pair(small_model, token) as pair, Gateway(prefill=[pair.prefill], decode=[pair.decode]) as gateway:
        before = bytes_read(gateway)
        assert gateway.post("/v1/completions", {**BODY, "prompt": "The dog and the cat " * 60})[0] == 200
        metrics = pair.prefill.get("/metrics")[1]
        moved = float(re.search(r'^shoal_comm_bytes_total\{rank="0",purpose="kv",scope="host"\} (\S+)', metrics, re.M)[1])
        carried = bytes_read(gateway) - before
        assert moved > 100_000 and carried < moved / 4, (moved, carried)
        assert "shoal_comm_bytes_total" not in gateway.get("/metrics")[1], "a gateway is no rank: it has nothing to move KV with"


def bytes_read(server):
    """By any read of the process, sockets included."""
    with open(f"/proc/{server.process.pid}/io") as counts:
        return int(re.search(r"rchar: (\d+)", counts.read())[1])


def test_bad_requests_are_refused_in_the_workers_words(workers, alone):
    for wrong in ({**BODY, "temperature": 9}, {**BODY, "n": 0}, {**BODY, "prompt": "x " * 5000}):
        assert workers.gateway.post("/v1/completions", wrong) == alone.post("/v1/completions", wrong)
        assert b" 400 " in head_of(workers.gateway, {**wrong, "stream": True})
    status, body = workers.gateway.post("/v1/completions", {**BODY, "bootstrap_room": 3})
    assert status == 400 and body["error"]["param"] == "bootstrap_room"
    workers.wait_idle()


def head_of(server, body):
    data = json.dumps(body).encode()
    with server.connect() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        return connection.recv(65536).split(b"\r\n")[0]


@pytest.mark.parametrize("wait_for_text", [False, True])
def test_a_client_that_leaves_frees_both(workers, wait_for_text):
    body = {**BODY, "prompt": "The dog " * 100, "max_tokens": 200}
    client = streaming(workers.gateway, body)
    while wait_for_text and b'"text"' not in client.seen:
        client.receive()
    client.client.close()
    workers.wait_idle(5)
    workers.gateway.wait_until(lambda: workers.gateway.metric("shoal_gateway_requests_running") == 0)


def test_an_abort_ends_both_with_what_there_is(workers):
    body = {**BODY, "max_tokens": 400, "rid": "mine", "n": 4}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(streamed, workers.gateway, body)
        workers.gateway.wait_until(lambda: any(worker.get("/get_server_info")[1]["num_requests_running"] for worker in workers.decode))
        assert workers.gateway.post("/abort_request", {"rid": "mine"})[1]["cancelled"] == 1
        choices, _ = merged(running.result(20)[1])
    assert {choice["finish"] for choice in choices.values()} == {"abort"}
    workers.wait_idle()


@pytest.mark.parametrize("case", ["sampled", "choices", "logprobs", "stop"])
def test_an_answer_goes_on_when_its_decode_worker_goes(workers, alone, case):
    """From where the stream is, another decode worker continues it."""
    body = {**LONG, **CASES[case]}
    want = merged(streamed(alone, body)[1])
    gateway, urls = workers.gateway, [worker.url for worker in workers.decode]
    client = streaming(gateway, body)
    while len(client.seen) < 4000 and not client.ended:
        client.receive()
    for url in urls:
        if gateway.workers()[url]["in_flight"]:
            gateway.request(f"/workers?url={url}&now=true", method="DELETE")
            # As an operator would: a worker without a role given says its own.
            gateway.post("/workers", {"url": url})
    while not client.ended:
        client.receive()
    assert merged(client.events()) == want
    gateway.wait_for_workers(4)
    assert gateway.metric('shoal_gateway_continuations_total{result="failed"}') == 0
    workers.wait_idle()


@pytest.mark.parametrize("victim", NODES)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_streams_go_on_when_a_worker_of_a_pair_goes(victim, number):
    roles = {"prefill": ("--role", "prefill", "--decode-ms", 15, "--prefill-tok-s", 2000), "decode": ("--role", "decode", *FAST)}
    with Fakes(*roles["prefill"]) as p1, Fakes(*roles["prefill"]) as p2, Fakes(*roles["decode"]) as d1, Fakes(*roles["decode"]) as d2:
        with Gateway(prefill=[p1, p2], decode=[d1, d2], flags=["--policy", "round_robin"]) as gateway:
            want = text_of(streamed(gateway, FAKE)[1])
            assert len(want) > 100
            lost = p1 if victim == "prefill" else d1

            def harm():
                gateway.wait_until(lambda: gateway.workers()[lost.url]["in_flight"] >= 3)
                lost.process.send_signal(number)
            for events in streams_at_once(gateway, [FAKE] * 20, harm):
                assert text_of(events) == want
                check_stream(events, 60)
            received, ended = gateway.ended()
            assert received == ended["answered"] == 21
            assert gateway.metric('shoal_gateway_continuations_total{result="failed"}') == 0
            lost.process.send_signal(signal.SIGKILL)
            gateway.wait_until(lambda: all(w["in_flight"] == 0 and w["reserved_tokens"] == 0 for w in gateway.workers().values()))


def test_whole_answers_are_asked_again_when_a_worker_of_a_pair_goes():
    with Fakes("--role", "prefill", *FAST) as p, Fakes("--role", "decode", *FAST) as d1, Fakes("--role", "decode", *FAST) as d2:
        with Gateway(prefill=[p], decode=[d1, d2], flags=["--policy", "round_robin"]) as gateway:
            want = gateway.post("/v1/completions", FAKE)[1]["choices"]
            with ThreadPoolExecutor(10) as pool:
                running = [pool.submit(gateway.post, "/v1/completions", FAKE) for _ in range(10)]
                gateway.wait_until(lambda: gateway.workers()[d1.url]["in_flight"] >= 3)
                d1.process.kill()
                assert [(status, body["choices"]) for status, body in (one.result(60) for one in running)] == [(200, want)] * 10


@pytest.mark.parametrize("harmed", NODES)
@pytest.mark.parametrize("harm", ["cut", "garbage", "refuse", "lie-idle"])
def test_a_worker_of_a_pair_that_does_wrong_harms_nobody(harm, harmed):
    def flags(role, bad):
        return ("--role", role, *FAST, *(("--harm", harm) if bad and role == harmed else ()))
    with Fakes(*flags("prefill", True)) as p1, Fakes(*flags("prefill", False)) as p2, Fakes(*flags("decode", True)) as d1:
        with Fakes(*flags("decode", False)) as d2, Gateway(prefill=[p1, p2], decode=[d1, d2],
                                                           flags=["--policy", "round_robin", "--attempts", 8]) as gateway:
            want = text_of(streamed(gateway, FAKE)[1])
            for events in streams_at_once(gateway, [FAKE] * 6, lambda: None):
                assert text_of(events) == want
                check_stream(events, 60)
            received, ended = gateway.ended()
            assert received == ended["answered"] == 7


def test_a_pair_whose_workers_cannot_meet_is_left_alone(small_model, token, tmp_path):
    """Both are well and answer the gateway; between them there is no way, for another token guards it."""
    other = tmp_path / "token"
    other.write_text("a token that nobody else holds")
    other.chmod(0o600)
    flags = ("--served-model-name", "small", "--deterministic", "--threads", 1)
    with Server(small_model, *flags, "--token-file", token, "--role", "prefill", "--bootstrap-port", 0) as prefill, \
            Server(small_model, *flags, "--token-file", other, "--role", "decode") as stranger, \
            Server(small_model, *flags, "--token-file", token, "--role", "decode") as decode, \
            Gateway(prefill=[prefill], decode=[stranger, decode], flags=["--policy", "round_robin", "--breaker-failures", 2]) as gateway:
        for _ in range(8):
            status, body = gateway.post("/v1/completions", BODY)
            assert status == 200, body
        assert gateway.metric("shoal_gateway_pairs_avoided") == 1
        assert all(worker["breaker"] == "closed" for worker in gateway.workers().values())


def test_roles_that_need_each_other_are_named():
    with Fakes("--role", "decode", *FAST) as decode, Gateway(decode=[decode], flags=["--worker-seconds", 0.2]) as gateway:
        status, body = gateway.post("/v1/completions", FAKE)
        assert status == 503 and "takes one of each" in body["error"]["message"], body
        assert gateway.get("/health")[0] == 503
    with Fakes("--role", "decode", *FAST) as decode, Gateway(flags=["--prefill", decode.url]) as gateway:
        gateway.wait_until(lambda: "says that its role is decode" in gateway.workers()[decode.url]["why"])


def test_roles_register_themselves(small_model, token):
    flags = ("--served-model-name", "small", "--threads", 1, "--token-file", token)
    with Gateway(flags=["--token-file", token]) as gateway:
        with Server(small_model, *flags, "--gateway", gateway.url, "--role", "prefill", "--bootstrap-port", 0), \
                Server(small_model, *flags, "--gateway", gateway.url, "--role", "decode"):
            gateway.wait_for_workers(2)
            assert gateway.post("/v1/completions", BODY)[0] == 200
            assert gateway.get("/health")[0] == 200


ASK = {"model": "fake-model", "messages": [{"role": "user", "content": "hi"}]}
TRIPLE = ("bootstrap_host", "bootstrap_port", "bootstrap_room")


def plain_pair(prefill, decode, port=9123):
    return Gateway(flags=["--prefill", f"{prefill.url},{port}", "--decode", decode.url])


@pytest.mark.parametrize("whole_answer", [False, True])
def test_plain_engines_get_sglangs_fields(whole_answer):
    reply = whole(200, {"choices": [{"message": {"content": "well"}}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})
    with FakeServer(reply if whole_answer else answer("thrown away")) as prefill:
        with FakeServer(reply if whole_answer else answer("well")) as decode, plain_pair(prefill, decode) as gateway:
            gateway.wait_for_workers(2)
            if whole_answer:
                assert gateway.post("/v1/chat/completions", ASK)[1]["choices"][0]["message"]["content"] == "well"
            else:
                _, events = streamed(gateway, ASK, path="/v1/chat/completions")
                assert json.loads(events[0])["choices"][0]["delta"]["content"] == "well"
            gateway.wait_until(lambda: len(prefill.requests) == len(decode.requests) == 1)
            sent = [{key: body[key] for key in (*TRIPLE, "rid")} for body in (prefill.requests[0], decode.requests[0])]
            assert sent[0] == sent[1], "the same to both legs"
            assert sent[0]["bootstrap_host"] == "127.0.0.1" and sent[0]["bootstrap_port"] == 9123 and 0 <= sent[0]["bootstrap_room"] < 2**63
            assert {**prefill.requests[0], **ASK} == prefill.requests[0]
            # A list of prompts has a room each; further choices of a prompt are the engine's to count.
            gateway.post("/v1/completions", {"model": "fake-model", "prompt": ["a", "b"]})
            gateway.post("/v1/completions", {"model": "fake-model", "prompt": "a", "n": 3})
            gateway.wait_until(lambda: len(decode.requests) == 3)
            assert len(set(decode.requests[1]["bootstrap_room"])) == 2 and isinstance(decode.requests[2]["bootstrap_room"], int)


def test_a_plain_prefill_engine_that_refuses_ends_the_decode_leg():
    with FakeServer(whole(500, {"error": {"message": "broken"}})) as bad, FakeServer(answer("well")) as good, FakeServer() as decode:
        decode.answers = [decode.until_the_client_leaves(b""), answer("well")]
        with Gateway(flags=["--prefill", bad.url, "--prefill", good.url, "--decode", decode.url, "--policy", "round_robin"]) as gateway:
            gateway.wait_for_workers(3)
            for _ in range(2):
                _, events = streamed(gateway, ASK, path="/v1/chat/completions")
                assert json.loads(events[0])["choices"][0]["delta"]["content"] == "well"
                decode.answers = decode.answers[-1:]
            assert decode.left.wait(10)
            aborts = [body for body in decode.requests if "messages" not in body]
            legs = [body for body in decode.requests if "messages" in body]
            assert aborts and aborts[0]["rid"] == legs[0]["rid"] != legs[1]["rid"], "a new room for the next try"


def test_prefill_urls_that_are_none(tmp_path):
    for flag, part in (("http://127.0.0.1:1,0", "bootstrap port"), ("http://127.0.0.1:1,x", "bootstrap port"), ("ftp://x", "ftp://x")):
        with pytest.raises(RuntimeError, match=part):
            Gateway(flags=["--prefill", flag])
    with pytest.raises(RuntimeError, match="two roles"):
        Gateway(flags=["--prefill", "http://127.0.0.1:1", "--decode", "http://127.0.0.1:1"])
