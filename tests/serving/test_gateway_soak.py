"""A gateway under mixed load while workers are killed, stopped and started again: every request has one end, answers are
whole and the undisturbed ones, nothing stays reserved, memory stays flat."""
import json
import os
import random
import signal
import threading
import time

import pytest

from gateway import Gateway
from ports import free_ports
from test_gateway_resilience import Fakes
from test_soak import slope_mib_per_minute

CLIENTS = 12
ROLES = ("both", "both", "prefill", "prefill", "decode", "decode")
SPEED = ("--decode-ms", 4, "--prefill-tok-s", 2e5)
PROMPTS = ["x" * length for length in (40, 400, 4000, 20000)]


class Fleet:
    """Fake workers at ports of their own, so that one that comes back is the same one to the gateway."""

    def __init__(self):
        self.first = free_ports(len(ROLES))
        self.fakes = [self._start(index) for index in range(len(ROLES))]

    def _start(self, index):
        return Fakes("--role", ROLES[index], *SPEED, ports=str(self.first + index))

    def urls(self, role):
        return [f"http://127.0.0.1:{self.first + index}" for index, each in enumerate(ROLES) if each == role]

    def harm(self, draw, ending):
        """One worker for a while; the others of its role stay."""
        index = draw.randrange(len(ROLES))
        process = self.fakes[index].process
        if draw.random() < 0.5:
            process.send_signal(signal.SIGSTOP)
            ending.wait(draw.uniform(0.5, 4))
            process.send_signal(signal.SIGCONT)
        else:
            process.kill()
            process.wait()
            ending.wait(draw.uniform(0.2, 2))
            self.fakes[index].__exit__()
            self.fakes[index] = self._start(index)

    def end(self):
        for fake in self.fakes:
            fake.process.send_signal(signal.SIGCONT)
            fake.__exit__()


class Clients:
    """Each of them asks, again and again, in a way drawn anew."""

    def __init__(self, gateway, seconds):
        self.gateway, self.sent, self.whole, self.left, self.rejected, self.problems = gateway, 0, 0, 0, 0, []
        self.texts, self.lock = {}, threading.Lock()
        self.until = time.monotonic() + seconds
        self.threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _run(self, seed):
        draw = random.Random(seed)
        while time.monotonic() < self.until and len(self.problems) < 5:
            body = {"model": "fake", "prompt": draw.choice(PROMPTS), "max_tokens": draw.choice((1, 20, 150)), "seed": draw.randrange(3)}
            how = draw.choice(("whole", "stream", "stream", "slow", "leave", "unknown"))
            with self.lock:
                self.sent += 1
            try:
                getattr(self, "_" + how)(body, draw)
            except (OSError, ValueError, KeyError, AssertionError) as error:
                self.problems.append(f"{how} {body['max_tokens']}: {error!r}")
            time.sleep(draw.uniform(0, 0.1))  # a pace, so that the workers and the tests beside have a core too

    def _check(self, body, text, usage):
        assert usage["completion_tokens"] == body["max_tokens"], usage
        key = (len(body["prompt"]), body["max_tokens"], body["seed"])
        with self.lock:
            assert self.texts.setdefault(key, text) == text, f"another text: {key}"
            self.whole += 1

    def _whole(self, body, _):
        status, answer = self.gateway.post("/v1/completions", body)
        assert status == 200, (status, answer)
        self._check(body, answer["choices"][0]["text"], answer["usage"])

    def _open(self, body):
        data = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
        client = self.gateway.connect()
        client.settimeout(60)
        client.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        return client

    def _stream(self, body, draw, pause=0.0):
        seen = b""
        with self._open(body) as client:
            while part := client.recv(65536 if pause == 0 else 512):
                seen += part
                time.sleep(pause)
        head, _, stream = seen.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.") and head.split()[1] == b"200", seen[:300]
        events = [line[6:] for line in stream.decode().split("\n") if line.startswith("data: ")]
        assert events[-1] == "[DONE]", events[-2:]
        chunks = [json.loads(event) for event in events[:-1]]
        assert not any("error" in chunk for chunk in chunks), chunks[-1]
        usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
        assert len(usages) == 1, "usage comes once"
        self._check(body, "".join(choice["text"] for chunk in chunks for choice in chunk["choices"]), usages[0])

    def _slow(self, body, draw):
        self._stream(body, draw, pause=0.01)

    def _leave(self, body, draw):
        with self._open(body) as client:
            client.settimeout(draw.uniform(0.001, 0.5))
            try:
                client.recv(2000)
            except TimeoutError:
                pass
        with self.lock:
            self.left += 1

    def _unknown(self, body, _):
        status, answer = self.gateway.post("/v1/completions", {**body, "model": "another"})
        assert status == 404, (status, answer)
        with self.lock:
            self.rejected += 1


def soak(seconds):
    fleet, ending, draw, samples, harms = Fleet(), threading.Event(), random.Random(5), [], 0
    flags = [word for role in ("both", "prefill", "decode") for url in fleet.urls(role)
             for word in ("--worker" if role == "both" else f"--{role}", url)]
    try:
        with Gateway(flags=flags) as gateway:
            gateway.wait_for_workers(len(ROLES))
            start = time.monotonic()
            clients = Clients(gateway, seconds)

            def churn():
                nonlocal harms
                while not ending.wait(draw.uniform(0.5, 3)):
                    fleet.harm(draw, ending)
                    harms += 1
                    gateway.wait_for_workers(len(ROLES), 60)
            churner = threading.Thread(target=churn)
            churner.start()
            try:
                while any(thread.is_alive() for thread in clients.threads):
                    samples.append((time.monotonic() - start, gateway.rss_anon_kib()))
                    time.sleep(1)
            finally:
                ending.set()
                churner.join(90)
            assert not clients.problems, clients.problems
            assert harms > 0 and clients.whole > CLIENTS and clients.left > 0

            gateway.wait_until(lambda: sum(gateway.ended()[1].values()) == gateway.ended()[0])
            received, ends = gateway.ended()
            print(f"{clients.sent} requests, {harms} workers harmed: {ends}, retries {gateway.metric('shoal_gateway_retries_total'):.0f}, "
                  f"continuations {gateway.metric('shoal_gateway_continuations_total'):.0f}; {samples[0][1]} to {samples[-1][1]} KiB")
            assert clients.sent - clients.left <= received <= clients.sent
            assert ends["rejected"] == clients.rejected and ends["failed"] == 0 and ends["overloaded"] == 0
            # Who leaves may have had the whole answer, or nothing of it read.
            assert clients.whole <= ends["answered"] <= clients.whole + clients.left
            for name in ("requests_running", "requests_waiting", "worker_in_flight", "worker_reserved_tokens"):
                gateway.wait_until(lambda name=name: gateway.metric(f"shoal_gateway_{name}") == 0)
            assert gateway.stop() == 0
    finally:
        fleet.end()
    return samples


def test_a_short_soak_gives_every_request_one_end():
    soak(float(os.environ.get("SHOAL_GATEWAY_SOAK_SECONDS", 12)))


@pytest.mark.slow
def test_twenty_minutes_leave_memory_flat():
    samples = soak(1200)
    slope = slope_mib_per_minute([(t, v) for t, v in samples if t >= 240])
    print(f"RssAnon slope over the last sixteen minutes: {slope:.2f} MiB a minute")
    assert slope <= 1
