"""Decode workers with a pool too small for what runs: answers that give way come back as if they never had."""
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from pair import Pair, answers, body_of
from server import Server

# 24 pages of 32 tokens; each answer takes 8 or 9 in the end.
FEW_PAGES = ("--kv-pages", 24, "--max-seqs", 8)
BODIES = [body_of(f"{i} times " * (4 + i), 220, seed=i, ignore_eos=True) for i in range(8)]


def ask_all(server):
    with ThreadPoolExecutor(len(BODIES)) as pool:
        replies = list(pool.map(lambda body: server.post("/v1/completions", body), BODIES))
    assert [status for status, _ in replies] == [200] * len(BODIES), replies
    return [answers(answer) for _, answer in replies]


def metric(server, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", server.get("/metrics")[1], re.M)
    assert found, name
    return float(found[1])


@pytest.fixture(scope="module")
def expected(alone):
    return ask_all(alone)


@pytest.mark.parametrize("way", ["offload", "recompute"])
def test_a_decode_worker_out_of_pages_answers_as_a_large_one(small_model, token, expected, way):
    flags = (*FEW_PAGES, "--retract", way, "--offload-bytes", "64MiB")
    with Pair(small_model, token, decode=flags) as pair:
        assert ask_all(pair.front) == expected
        assert metric(pair.decode, f'shoal_retractions_total{{kind="{way}"}}') > 0
        other = "recompute" if way == "offload" else "offload"
        assert metric(pair.decode, f'shoal_retractions_total{{kind="{other}"}}') == 0
        pair.wait_idle()
        assert metric(pair.decode, "shoal_offloaded_bytes") == 0
        info = pair.decode.get("/get_server_info")[1]
        assert info["retractions_total"][way] == info["preemptions_total"]


def test_two_ranks_keep_their_own_pages(small_model, expected):
    flags = ("--served-model-name", "small", "--deterministic", "--threads", 1, "--tp", 2)
    with Server(small_model, *flags, *FEW_PAGES, "--retract", "offload", "--offload-bytes", "64MiB") as server:
        assert ask_all(server) == expected
        assert metric(server, 'shoal_retractions_total{kind="offload"}') > 0
        server.wait_idle()
        assert metric(server, "shoal_offloaded_bytes") == 0


def test_a_buffer_smaller_than_a_page_is_refused(small_model):
    with pytest.raises(RuntimeError, match="--offload-bytes 100: it must be 0, or at least the"):
        Server(small_model, "--offload-bytes", 100)
