"""Ranks on three hosts over 1 Gbit/s: one rank's bits, and the bytes that the ledger claims have crossed the network."""
import subprocess

import pytest

from asking import answers
from cluster import Cluster, layout_name
from server import BINARY, Server

# By rank, the host; rank 0's host starts its ranks itself.
LAYOUTS = [
    (("--tp", 3), [0, 1, 2]),
    (("--pp", 3), [0, 1, 2]),
    (("--tp", 2, "--pp", 2), [0, 0, 1, 1]),  # sums in memory, stages over the network
    (("--tp", 2, "--pp", 2), [0, 1, 2, 1]),  # sums over the network
    (("--cp", 3, "--cp-force", 3), [0, 1, 2]),
    (("--tp", 2, "--cp", 2, "--cp-force", 2), [0, 0, 1, 2]),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=layout_name)
def test_ranks_of_several_hosts_give_one_ranks_answers(network, small_model, one_rank, layout):
    flags, hosts = layout
    with Cluster(network, small_model, hosts, "--deterministic", *flags) as cluster:
        cluster.expect_answers_over_the_network(one_rank)
        assert cluster.server.worker()["epoch"] == 1
        assert 'purpose="tp",scope="network"' in cluster.server.get("/metrics")[1] or "--tp" not in flags
        cluster.server.wait_idle()
        assert cluster.server.stop() == 0
        for number, rank in cluster.ranks.items():
            assert rank.codes in ([], [0]), rank.output()


def test_long_prompts_of_another_shape(network, tiny_model):
    """Thousands of tokens: sums in pieces, many chunks in flight over the stages."""
    prompts = ["one two three four " * 300, "five " * 100, "six"]
    with Server(tiny_model, "--served-model-name", "small", "--deterministic", "--threads", 1) as server:
        alone = answers(server, prompts)
    for flags, hosts in ((("--tp", 2), [0, 1]), (("--pp", 3), [0, 1, 2])):
        with Cluster(network, tiny_model, hosts, "--deterministic", *flags) as cluster:
            before = [network.sent(host) for host in range(3)]
            assert answers(cluster.server, prompts) == alone, cluster.logs()
            for host, claimed in enumerate(cluster.network_bytes()):
                assert network.sent(host) - before[host] >= 0.95 * claimed, (host, claimed)


def test_sums_travel_in_half_the_bytes(network, small_model):
    """--wire bf16: half of what f32 moves, and nearly its answer."""
    asked = {"model": "small", "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0, "ignore_eos": True, "logprobs": 1}
    moved, scored = {}, {}
    for wire in ("f32", "bf16"):
        with Cluster(network, small_model, [0, 1, 2], "--tp", 3, "--wire", wire) as cluster:
            status, body = cluster.server.post("/v1/completions", asked)
            assert status == 200, body
            cluster.network_bytes()
            ranks = cluster.server.worker()["ranks"]
            moved[wire] = [(rank["traffic"]["tp"]["payload_bytes"], rank["traffic"]["tp"]["network_bytes"]) for rank in ranks]
            scored[wire] = body["choices"][0]["logprobs"]["token_logprobs"]
            assert "layout.wire" not in cluster.logs()
    assert all(f32[0] == 2 * bf16[0] > 0 and f32[1] == 2 * bf16[1] for f32, bf16 in zip(moved["f32"], moved["bf16"])), moved
    assert scored["bf16"][0] == pytest.approx(scored["f32"][0], abs=0.05)


def test_what_would_not_travel_gets_a_warning(small_model):
    with Server(small_model, "--served-model-name", "small", "--threads", 1, "--tp", 2, "--wire", "bf16") as server:
        assert "no ranks that sum together are on different hosts" in server.output()


@pytest.mark.parametrize("flags, code, sentence", [
    (("--listen-ranks", "127.0.0.1:7000"), 2, "--token-file"),
    (("--listen-ranks", "nowhere", "--token-file", "TOKEN"), 2, "'nowhere' is not an address HOST:PORT"),
    (("--listen-ranks", "192.0.2.1:7000", "--token-file", "TOKEN"), 1, "cannot listen on 192.0.2.1:7000"),
    (("--listen-ranks", "127.0.0.1:7000", "--token-file", "missing"), 1, "missing"),
    (("--local-ranks", "1"), 2, "--local-ranks 1: the other 1 ranks need --listen-ranks to join at"),
    (("--local-ranks", "3"), 2, "--local-ranks 3: the layout tp2 pp1 cp1 dp1 ep1 has 2 ranks, this one included"),
    (("--wire", "bf16", "--deterministic"), 2, "--wire bf16 rounds what ranks add up, and then the layout shows"),
])
def test_flags_that_do_not_fit_are_one_sentence(small_model, tmp_path, flags, code, sentence):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    done = subprocess.run([BINARY, "serve", small_model, "--port", "0", "--tp", "2", "--log-level", "error",
                           *(str(token) if flag == "TOKEN" else flag for flag in flags)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr


def test_ranks_that_do_not_come_end_the_start(small_model, tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    done = subprocess.run([BINARY, "serve", small_model, "--port", "0", "--tp", "3", "--listen-ranks", "127.0.0.1:7321",
                           "--token-file", token, "--join-seconds", "1", "--local-ranks", "2"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "shoal serve: 1 of 2 ranks joined within 1 s; missing: 2" in done.stderr
