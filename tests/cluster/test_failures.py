"""kill -9, SIGSTOP and a cut link on each rank at random times: noticed within 5 s, a clean error, pages back, the next
answer right; and no rank is taken for dead while it idles or works."""
import itertools
import os
import random
import signal
import threading
import time

import pytest

from asking import answers
from cluster import Cluster

ROUNDS = int(os.environ.get("SHOAL_FAULT_ROUNDS", "5"))
NOTICED = 5.0  # seconds
PATIENCE = 90  # of a client: requests wait for a lost rank's like for at most 60 s
LAYOUTS = [(("--tp", 3), [0, 1, 2]), (("--pp", 3), [0, 1, 2]), (("--tp", 2, "--pp", 2), [0, 0, 1, 2]),
           (("--cp", 2, "--cp-force", 2), [0, 1]), (("--cp", 3, "--cp-force", 3), [0, 1, 2])]


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.02)


class Load:
    """Streams that run on and on; when one ends, the next begins. Counts whole answers and clean errors.

    Every other prompt is long, and none is in the cache: several coordinates compute it, and hold what is decoded after it."""

    def __init__(self, server, streams=2):
        self.numbers = itertools.count()
        self.server, self.whole, self.errors, self.broken = server, 0, 0, []
        self.ending = threading.Event()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(streams)]
        for thread in self.threads:
            thread.start()

    def _run(self):
        while not self.ending.is_set():
            try:
                number = next(self.numbers)
                prompt = f"{number} {time.monotonic_ns()} dogs" + " and a cat" * (80 if number % 2 else 1)
                status, body = self.server.post("/v1/completions", {
                    "model": "small", "prompt": prompt, "max_tokens": 60, "ignore_eos": True}, timeout=PATIENCE)
            except OSError as error:  # the head is gone, or being cut off
                self.broken.append(str(error))
                self.ending.wait(0.2)
                continue
            if status == 200:
                self.whole += 1
            elif status == 503:
                self.errors += 1
                self.ending.wait(0.05)
            else:
                self.broken.append(f"{status}: {body}")

    def end(self):
        self.ending.set()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a request hangs"


def healthy(server):
    try:
        return server.get("/health", timeout=5)[0] == 200
    except OSError:
        return False


class Round:
    """One fault: does the harm, sees that it is noticed, undoes it, sees that all is well again."""

    def __init__(self, cluster, rank, action, expected):
        self.cluster, self.rank, self.action, self.expected = cluster, rank, action, expected
        self.server = cluster.server

    def pid(self):
        if self.rank == 0:
            return self.server.process.pid
        return next(each["pid"] for each in self.server.worker()["ranks"] if each["rank"] == self.rank)

    def harm(self):
        if self.action == "cut":
            self.cluster.network.cut(self.cluster.hosts[self.rank])
        else:
            os.kill(self.pid(), signal.SIGKILL if self.action == "kill" else signal.SIGSTOP)

    def run(self):
        return self.lose_head() if self.rank == 0 else self.lose_rank()

    def lose_rank(self):
        epoch, pid = self.server.worker()["epoch"], self.pid()
        begin = time.monotonic()
        self.harm()
        wait_until(lambda: self.server.worker()["lost"] or self.server.worker()["epoch"] > epoch, NOTICED,
                   f"rank {self.rank}: {self.action} is not noticed")
        noticed = time.monotonic() - begin
        if self.action == "cut":
            self.cluster.network.mend(self.cluster.hosts[self.rank])
        elif self.action == "stop" and self.rank in self.cluster.ranks:
            os.kill(pid, signal.SIGCONT)  # a rank of an epoch that is over: it is told so and leaves
        wait_until(lambda: healthy(self.server), 30, self.cluster.logs)
        assert self.server.worker()["epoch"] > epoch
        return noticed

    def lose_head(self):
        """The other ranks leave with 3 within 5 s; the server is started again and they join it."""
        before = {number: len(rank.codes) for number, rank in self.cluster.ranks.items()}
        begin = time.monotonic()
        self.harm()
        wait_until(lambda: all(len(rank.codes) > before[number] for number, rank in self.cluster.ranks.items()), NOTICED,
                   self.cluster.logs)
        noticed = time.monotonic() - begin
        assert all(rank.codes[before[number]] == 3 for number, rank in self.cluster.ranks.items()), self.cluster.logs()
        if self.action == "cut":
            self.cluster.network.mend(0)
        if self.action == "stop":
            os.kill(self.server.process.pid, signal.SIGCONT)
        if self.action == "kill":
            self.server.process.wait(20)
            self.cluster.start_head()
            self.server = self.cluster.server
        wait_until(lambda: healthy(self.server), 40, self.cluster.logs)
        return noticed

    def check(self):
        assert answers(self.server) == self.expected, self.cluster.logs()
        self.server.wait_idle()
        pages = self.server.pages()
        assert pages["free"] + pages["cached"] == pages["capacity"], pages
        assert self.server.post("/flush_cache", {})[0] == 200
        assert self.server.pages()["free"] == pages["capacity"]


def rounds_of(seed):
    """Every rank and action comes up before one comes up again."""
    random.seed(seed)
    cases = []
    while len(cases) < ROUNDS:
        every = [(rank, action) for rank in range(4) for action in ("kill", "stop", "cut")]
        random.shuffle(every)
        cases += every
    return cases[:ROUNDS]


@pytest.mark.parametrize("layout", LAYOUTS, ids=["tp3", "pp3", "tp2pp2", "cp2", "cp3"])
def test_faults_at_random_times(network, small_model, one_rank, layout):
    flags, hosts = layout
    seed = int(os.environ.get("SHOAL_FAULT_SEED", "0")) or random.randrange(1, 1 << 30)
    print(f"SHOAL_FAULT_SEED={seed}")
    with Cluster(network, small_model, hosts, "--deterministic", *flags) as cluster:
        for number, (rank, action) in enumerate(rounds_of(seed)):
            if rank >= len(hosts) or (action == "cut" and rank > 0 and hosts[rank] == 0):
                continue  # no such rank, or no link between it and the head
            load = Load(cluster.server)
            time.sleep(random.uniform(0, 0.8))
            fault = Round(cluster, rank, action, one_rank)
            noticed = fault.run()
            load.end()
            assert rank == 0 or not load.broken, load.broken
            fault.check()
            print(f"round {number}: rank {rank} {action}: noticed after {noticed:.2f} s, {load.whole} whole, {load.errors} "
                  f"refused or ended")
        assert cluster.server.stop() == 0


@pytest.mark.parametrize("flags", [("--tp", 3), ("--pp", 3)], ids=["tp3", "pp3"])
def test_a_cut_between_two_ranks_that_see_the_head(network, small_model, one_rank, flags):
    """Nobody is silent on its control connection: the two notice by themselves, and tell the head."""
    with Cluster(network, small_model, [0, 1, 2], "--deterministic", *flags) as cluster:
        server = cluster.server
        load = Load(server)
        time.sleep(0.5)
        network.part(1, 2)
        try:
            wait_until(lambda: server.worker()["lost"] or server.worker()["epoch"] > 1, NOTICED, cluster.logs)
        finally:
            network.unite(1, 2)
        wait_until(lambda: healthy(server), 40, cluster.logs)
        load.end()
        assert not load.broken, load.broken
        assert answers(server) == one_rank, cluster.logs()
        assert all(not rank.codes for rank in cluster.ranks.values()), "nobody had to leave"


def test_nobody_is_taken_for_dead_while_idle_or_under_load(network, small_model):
    with Cluster(network, small_model, [0, 1, 2], "--tp", 3) as cluster:
        time.sleep(5)  # longer than any silence that is allowed
        load = Load(cluster.server, streams=8)
        time.sleep(5)
        load.end()
        assert load.whole > 0 and load.errors == 0 and not load.broken, cluster.logs()
        assert cluster.server.worker()["epoch"] == 1, cluster.logs()
