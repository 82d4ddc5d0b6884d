"""Many clients on a pool far too small, in strict mode: every answer as if alone, and nothing left behind."""
import os
import random
import threading
import time

import pytest

from server import Server

CLIENTS = 64
FLAGS = ("--deterministic", "--kv-pages", 24, "--max-seqs", 16, "--max-queue", 48, "--served-model-name", "soak")
WORDS = "the little fox ran over a big hill and saw one red bird who said hello to every tree in that old green wood".split()


def make_request(rng):
    """A request from a small set of shapes: shared prefixes, many lengths, greedy and seeded."""
    prefix = " ".join(WORDS[i % len(WORDS)] for i in range(rng.choice([0, 5, 40, 90]))) + str(rng.randrange(3))
    body = {
        "model": "soak",
        "prompt": prefix + " ".join(rng.choice(WORDS) for _ in range(rng.choice([1, 3, 20, 60]))),
        "max_tokens": rng.choice([1, 4, 24, 96]),
        "temperature": rng.choice([0, 0.8]),
        "seed": rng.randrange(1000),
        "n": rng.choice([1, 1, 1, 2]),
        "logprobs": 1,
    }
    if rng.random() < 0.2:
        body["stop"] = rng.choice(["said", " the", "."])
    if rng.random() < 0.2:
        body["ignore_eos"] = True
    return body


def result_of(answer):
    return [(choice["text"], choice["finish_reason"], choice["logprobs"]["token_logprobs"]) for choice in answer["choices"]]


def client_loop(server, seed, stop_at, seen, problems):
    rng = random.Random(seed)
    while time.monotonic() < stop_at:
        body = make_request(rng)
        if rng.random() < 0.15:
            leave_early(server, body, rng)
            continue
        status, answer = server.post("/v1/completions", body)
        if status == 200:
            seen.append((body, result_of(answer)))
        elif status == 429:
            time.sleep(rng.random() * 0.2)  # what a client does that honours Retry-After, shortened
        else:
            problems.append((status, answer, body))


def leave_early(server, body, rng):
    import json
    raw = json.dumps({**body, "stream": True}).encode()
    with server.connect() as connection:
        connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)
        connection.settimeout(0.001 + rng.random() * 0.3)
        try:
            connection.recv(2000)
        except TimeoutError:
            pass


def slope_mib_per_minute(samples):
    """Least squares over (seconds, KiB)."""
    n = len(samples)
    mean_t = sum(t for t, _ in samples) / n
    mean_v = sum(v for _, v in samples) / n
    covariance = sum((t - mean_t) * (v - mean_v) for t, v in samples)
    return covariance / sum((t - mean_t) ** 2 for t, _ in samples) * 60 / 1024


def soak(server, seconds):
    seen, problems, samples = [], [], []
    before = server.pages()
    start = time.monotonic()
    threads = [threading.Thread(target=client_loop, args=(server, seed, start + seconds, seen, problems)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        samples.append((time.monotonic() - start, server.rss_anon_kib()))
        time.sleep(1)
    server.wait_idle(60)
    print(f"{len(seen)} answers, {server.get('/get_server_info')[1]['preemptions_total']} preemptions")

    assert not problems, problems[:3]
    assert len(seen) > CLIENTS
    after = server.pages()
    assert after["free"] + after["cached"] == before["capacity"], after
    serial = {}
    for body, result in seen:
        key = repr(sorted(body.items()))
        if key not in serial:
            status, answer = server.post("/v1/completions", body)
            assert status == 200, answer
            serial[key] = result_of(answer)
        assert result == serial[key], body
    assert server.post("/flush_cache", {})[0] == 200
    assert server.pages()["free"] == before["capacity"]
    return samples


def test_a_short_soak_answers_as_if_alone(small_model):
    with Server(small_model, *FLAGS) as server:
        soak(server, float(os.environ.get("SHOAL_SOAK_SECONDS", 15)))
        assert server.stop() == 0


@pytest.mark.slow
def test_five_minutes_leave_memory_flat(small_model):
    with Server(small_model, *FLAGS) as server:
        samples = soak(server, 300)
        slope = slope_mib_per_minute([(t, v) for t, v in samples if t >= 60])
        print(f"RssAnon slope over the last four minutes: {slope:.2f} MiB a minute")
        assert slope <= 1
        assert server.stop() == 0
