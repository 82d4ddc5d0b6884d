"""kill -9, SIGSTOP and a cut link on any of two prefill and two decode workers under load: no client notices."""
import json
import os
import random
import signal
import tempfile
import threading
import time

import pytest

from gateway import Gateway
from server import DEMO_MODEL, Server
from test_gateway_pairs import wait_idle
from test_gateway_resilience import merged
from test_gateway import streamed

ROUNDS = int(os.environ.get("SHOAL_KILL_ROUNDS", "4"))
# `demo` for the long run: the small model's answers are over in a moment.
MODEL = os.environ.get("SHOAL_KILL_MODEL", "small")
PORT = 8000
FAULTS = ("kill", "stop", "cut")
LASTS = 3.5  # seconds of a fault: longer than it takes to be noticed
BODIES = [
    {"prompt": "Once upon a time", "max_tokens": 80, "temperature": 0},
    {"prompt": "The dog and the cat " * 20, "max_tokens": 40, "temperature": 0.9, "seed": 3, "logprobs": 2},
    {"prompt": "Lily and Ben went to the park. " * 4, "max_tokens": 50, "temperature": 1.0, "seed": 4, "n": 2},
    {"prompt": ["One day", "Two days later"], "max_tokens": 30, "temperature": 0.7, "seed": 5, "presence_penalty": 0.5},
    {"prompt": "Once there was", "max_tokens": 60, "temperature": 0.8, "seed": 6, "stop": ["and then", "zzz"]},
]


class Worker:
    """A worker on a host of its own, at the same address whenever it is started."""

    def __init__(self, network, host, model, flags):
        self.network, self.host, self.model, self.flags = network, host, model, flags
        self.start()

    def start(self):
        self.server = Server(self.model, *self.flags, inside=self.network.inside(self.host), host=self.network.address(self.host), port=PORT)

    def harm(self, fault):
        process = self.server.process
        if fault == "kill":
            process.kill()
            process.wait()
            time.sleep(LASTS)
            self.start()
        elif fault == "stop":
            process.send_signal(signal.SIGSTOP)
            time.sleep(LASTS)
            process.send_signal(signal.SIGCONT)
        else:
            self.network.cut(self.host)
            time.sleep(LASTS)
            self.network.mend(self.host)


class Load:
    """Clients that ask one thing after the other, streamed and whole, and compare each answer with what it should be."""

    def __init__(self, gateway, wanted, clients=3):
        self.gateway, self.wanted = gateway, wanted
        self.answered, self.wrong = 0, []
        self.ending = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def _run(self, number):
        chance = random.Random(number)
        while not self.ending.is_set() and not self.wrong:
            body, stream_wanted, whole_wanted = chance.choice(self.wanted)
            try:
                if chance.random() < 0.75:
                    got, want = merged(streamed(self.gateway, body)[1]), stream_wanted
                else:
                    got, want = whole(self.gateway.post("/v1/completions", body)), whole_wanted
            except Exception as error:  # noqa: BLE001 - whatever it is, a client has noticed
                got, want = repr(error), None
            if got != want:
                self.wrong.append((body, got, want))
            self.answered += 1

    def end(self):
        self.ending.set()
        for thread in self.threads:
            thread.join(90)
            assert not thread.is_alive(), "a request hangs"


def whole(response):
    status, body = response
    assert status == 200, body
    usage = {key: body["usage"][key] for key in ("prompt_tokens", "completion_tokens")}
    return [(choice["text"], choice["finish_reason"], choice["logprobs"]) for choice in body["choices"]], usage


@pytest.fixture
def model(small_model):
    if MODEL == "demo" and not DEMO_MODEL.exists():
        pytest.skip("the demo model is not cached (scripts/demo_model)")
    return DEMO_MODEL if MODEL == "demo" else small_model


def test_no_client_notices_what_befalls_a_worker(network, model):
    token = tempfile.NamedTemporaryFile("w", prefix="shoal-token-")
    token.write("a token that all workers hold")
    token.flush()
    flags = ("--served-model-name", "small", "--deterministic", "--threads", 1, "--token-file", token.name, "--kv-pages", 400)
    workers = []
    chance = random.Random(int(os.environ.get("SHOAL_KILL_SEED", "1")))
    bodies = [{"model": "small", "ignore_eos": True, **body} for body in BODIES]
    try:
        for host, role in enumerate(["prefill"] * 2 + ["decode"] * 2):
            workers.append(Worker(network, host, model, (*flags, "--role", role)))
        alone = workers[2].server
        wanted = [(body, merged(streamed(alone, body)[1]), whole(alone.post("/v1/completions", body))) for body in bodies]
        with Gateway(prefill=[worker.server for worker in workers[:2]], decode=[worker.server for worker in workers[2:]],
                     flags=["--stall-seconds", 10]) as gateway:
            load = Load(gateway, wanted)
            for round_ in range(ROUNDS):
                time.sleep(chance.uniform(0.2, 1.0))
                victim, fault = chance.randrange(4), chance.choice(FAULTS)
                print(f"round {round_ + 1}: {fault} {workers[victim].flags[-1]} worker {victim}, {load.answered} answers so far", flush=True)
                workers[victim].harm(fault)
                gateway.wait_for_workers(4, 30)
                if load.wrong:
                    pytest.fail(explained(load.wrong[0], gateway, workers), pytrace=False)
            load.end()
            if load.wrong:
                pytest.fail(explained(load.wrong[0], gateway, workers), pytrace=False)
            received, ended = gateway.ended()
            assert received == ended["answered"] == load.answered, (load.answered, received, ended)
            for worker in workers:
                wait_idle(worker.server, 10)
                pages = worker.server.pages()
                assert pages["held"] == pages["fenced"] == 0 and pages["free"] + pages["cached"] == pages["capacity"], pages
                assert worker.server.post("/flush_cache", {})[0] == 200 and worker.server.pages()["free"] == pages["capacity"]
            assert all(each["in_flight"] == 0 and each["reserved_tokens"] == 0 for each in gateway.workers().values())
            met = gateway.metric("shoal_gateway_continuations_total") + gateway.metric("shoal_gateway_retries_total")
            assert met >= ROUNDS / 4, f"{ROUNDS} rounds have met {met:.0f} answers: nothing was tried"
            print(f"{ROUNDS} rounds, {load.answered} answers, "
                  f"{gateway.metric('shoal_gateway_continuations_total'):.0f} continued, {gateway.metric('shoal_gateway_retries_total'):.0f} retries")
    finally:
        for host in range(4):
            network.mend(host)
        for worker in workers:
            worker.server.process.kill()


def explained(wrong, gateway, workers):
    body, got, want = wrong
    logs = "".join(f"--- {worker.flags[-1]} {worker.host}\n{worker.server.output()[-3000:]}" for worker in workers)
    return f"{json.dumps(body)}\n got {got}\nwant {want}\n--- gateway\n{gateway.output()[-6000:]}\n{logs}"
