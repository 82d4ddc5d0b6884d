"""Ranks of several hosts that meet with UCX over an interface named as a fabric: one rank's bits, over that interface; a rank
that is lost is noticed and its like joins again; what cannot be is one sentence."""
import re
import subprocess
import time

import pytest

from asking import answers
from cluster import Cluster, layout_name
from server import BINARY, Server

LAYOUTS = [
    (("--tp", 3), [0, 1, 2]),
    (("--pp", 3), [0, 1, 2]),
    (("--tp", 2, "--pp", 2), [0, 0, 1, 1]),  # sums in memory, stages over the fabric
    (("--cp", 2, "--cp-force", 2), [0, 1]),
]


def serve(model, token, *flags):
    command = [BINARY, "serve", model, "--port", 0, "--tp", 2, "--token-file", token, "--log-level", "error", *flags]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def token(tmp_path_factory):
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text("0123456789abcdef")
    return file


@pytest.fixture(scope="module")
def ucx(small_model, token):
    done = serve(small_model, token, "--listen-ranks", "127.0.0.1:7332", "--fabric", "nosuch0")
    if "UCX" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 2 and "--fabric nosuch0: there is no such interface here" in done.stderr, done.stderr


@pytest.mark.parametrize("layout", LAYOUTS, ids=layout_name)
def test_ranks_on_a_fabric_give_one_ranks_answers(ucx, network, small_model, one_rank, layout):
    flags, hosts = layout
    with Cluster(network, small_model, hosts, "--deterministic", "--fabric", "eth0", *flags) as cluster:
        cluster.expect_answers_over_the_network(one_rank)
        logs = cluster.logs()
        carriers = set(re.findall(r'carrier="(.*?)"', logs))
        assert carriers == ({"ucx and shm"} if hosts.count(0) > 1 else {"ucx"}), logs
        assert logs.count("not authenticated") == len(hosts), logs
        cluster.server.wait_idle()
        assert cluster.server.stop() == 0
        for rank in cluster.ranks.values():
            assert rank.codes in ([], [0]), rank.output()


def test_hosts_told_apart_by_name_meet_over_loopback(ucx, small_model, one_rank, token):
    """Also on one machine, and with an interface that the rank names itself."""
    rank = subprocess.Popen([BINARY, "rank", "--join", "127.0.0.1:7331", "--token-file", token, "--host-id", "b", "--fabric", "lo", "--threads", "1"])
    try:
        with Server(small_model, "--served-model-name", "small", "--deterministic", "--threads", 1, "--tp", 2, "--listen-ranks", "127.0.0.1:7331",
                    "--token-file", token, "--fabric", "lo", "--host-id", "a") as server:
            assert answers(server) == one_rank
            assert 'carrier="ucx"' in server.output()
        assert rank.wait(20) == 0
    finally:
        rank.kill()
        rank.wait()


@pytest.mark.parametrize("harm", ["kill", "cut"])
def test_a_lost_rank_is_noticed_and_awaited(ucx, network, small_model, one_rank, harm):
    with Cluster(network, small_model, [0, 1, 2], "--deterministic", "--fabric", "eth0", "--tp", 3) as cluster:
        assert answers(cluster.server) == one_rank
        began = time.monotonic()
        if harm == "kill":
            cluster.ranks[2].process.kill()
        else:
            network.cut(2)
        while cluster.server.worker()["epoch"] == 1:
            assert time.monotonic() - began < 8, cluster.logs()
            time.sleep(0.05)
        if harm == "cut":
            network.mend(2)
        while cluster.server.get("/health")[0] != 200:
            assert time.monotonic() - began < 60, cluster.logs()
            time.sleep(0.1)
        assert answers(cluster.server) == one_rank, cluster.logs()


def test_a_rank_that_cannot_use_the_fabric_ends_the_start(ucx, network, small_model):
    """Each host has a loopback of its own."""
    with pytest.raises(RuntimeError) as failed:
        with Cluster(network, small_model, [0, 1], "--fabric", "lo", "--tp", 2):
            pass
    assert "--fabric lo: not every rank is reached over it" in str(failed.value)


def test_a_fabric_needs_ranks_from_elsewhere(small_model, token):
    done = serve(small_model, token, "--fabric", "lo")
    assert done.returncode == 2 and "--listen-ranks" in done.stderr, done.stderr
    done = serve(small_model, token, "--listen-ranks", "127.0.0.1:7332", "--fabric", "")
    assert done.returncode == 2 and "names no interface" in done.stderr, done.stderr
