"""Requests of random lengths through one pair in strict mode, one in ten of them aborted: every answer is the one that a server
alone gives, one request at a time, and nothing is left behind. SHOAL_SOAK_REQUESTS: how many in the long run."""
import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pair import Pair
from server import Server
from test_soak import WORDS, result_of, slope_mib_per_minute

LONG = int(os.environ.get("SHOAL_SOAK_REQUESTS", 10_000))
CLIENTS = 12
TOMBSTONE = 96  # bytes: a node of a hash table, its bucket, and 16 bytes of a queue
FEW_PAGES = ("--kv-pages", 96, "--max-seqs", 16)  # fewer than all clients want together


def request_of(number):
    """Half of them begin as others do, so that caches are warm on one side, on both, or on none."""
    rng = random.Random(number)
    shared = " ".join(WORDS[(i + rng.randrange(2)) % len(WORDS)] for i in range(rng.choice([0, 20, 60]))) if rng.random() < 0.5 else ""
    body = {"model": "small", "prompt": shared + " ".join(rng.choice(WORDS) for _ in range(1 + int(rng.paretovariate(0.6)) % 90)),
            "max_tokens": 1 + int(rng.paretovariate(0.5)) % 60, "temperature": rng.choice([0, 0.8]), "seed": number, "logprobs": 1,
            "rid": f"soak-{number}"}
    if rng.random() < 0.1:
        body["n"] = 2
    if rng.random() < 0.2:
        body["stop"] = rng.choice(["said", " the", "."])
    return body


class Soak:
    def __init__(self, pair, alone):
        self.pair, self.alone = pair, alone
        self.one_at_a_time = threading.Lock()
        self.right = self.aborted = 0
        self.wrong = []
        self.samples = {"prefill": [], "decode": [], "front": []}
        self.began = time.monotonic()

    def one(self, number):
        if self.wrong:
            return
        body = request_of(number)
        if random.Random(-number).random() < 0.1:
            return self.abort(body, random.Random(number))
        status, answer = self.pair.front.post("/v1/completions", body)
        if status != 200:
            return self.wrong.append((status, answer, body))
        with self.one_at_a_time:
            status, expected = self.alone.post("/v1/completions", body)
        if status != 200 or result_of(answer) != result_of(expected):
            return self.wrong.append((answer, expected, body))
        self.right += 1
        if number % 50 == 0:
            for name, samples in self.samples.items():
                samples.append((time.monotonic() - self.began, getattr(self.pair, name).rss_anon_kib(), self.right + self.aborted))

    def abort(self, body, rng):
        """By hanging up, or by its name at one of the workers, after a while in which it may be anywhere, or over."""
        raw = json.dumps({**body, "stream": True}).encode()
        with self.pair.front.connect() as client:
            client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)
            client.settimeout(0.001 + rng.random() ** 3 * 0.2)
            try:
                client.recv(2000)
            except TimeoutError:
                pass
            how = rng.choice(["hang up", "prefill", "decode"])
            if how != "hang up":
                assert getattr(self.pair, how).post("/abort_request", {"rid": body["rid"]})[0] == 200
                client.settimeout(20)
                while client.recv(65536):
                    pass
        self.aborted += 1

    def run(self, requests):
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(self.one, range(requests)))


def check(model, token, requests):
    with Pair(model, token, prefill=FEW_PAGES, decode=FEW_PAGES) as pair, \
            Server(model, "--served-model-name", "small", "--deterministic", "--threads", 1) as alone:
        soak = Soak(pair, alone)
        soak.run(requests)
        assert not soak.wrong, soak.wrong[0]
        assert soak.right + soak.aborted == requests and soak.aborted > requests * 0.05
        pair.wait_idle(10)
        for server in (pair.prefill, pair.decode):
            pages = server.pages()
            assert pages["free"] + pages["cached"] == pages["capacity"]
        print(f"{soak.right} right, {soak.aborted} aborted in {time.monotonic() - soak.began:.0f} s")
        return soak


def test_random_requests_and_aborts(small_model, token):
    check(small_model, token, 300)


@pytest.mark.slow
def test_ten_thousand_requests(small_model, token):
    soak = check(small_model, token, LONG)
    for name, samples in soak.samples.items():
        half = samples[len(samples) // 2:]
        slope = slope_mib_per_minute([sample[:2] for sample in half])
        # Rooms that are over are remembered on purpose, 65,536 of them: in a run this quick that is growth, too.
        rooms = (half[-1][2] - half[0][2]) if name != "front" else 0
        remembered = rooms * TOMBSTONE / (1 << 20) / (half[-1][0] - half[0][0]) * 60
        print(f"{name}: {slope:.2f} MiB a minute, {remembered:.2f} of them {rooms} rooms that are over; {samples[0][1]} to {samples[-1][1]} KiB")
        assert slope - remembered <= 1, name
