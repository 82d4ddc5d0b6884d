"""A worker whose ranks run on several hosts of a Network, each rank started again when it ends."""
import secrets
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from asking import answers
from server import BINARY, Server

PORT = 7000


def layout_name(layout):
    """Of a test: flags and, by rank, the host."""
    return "".join(map(str, layout[0])).replace("--", "") + "_hosts" + "".join(map(str, layout[1]))


class Rank:
    """A `shoal rank` process that is started anew whenever it ends, as a supervisor would."""

    def __init__(self, command):
        self.command = command
        self.log = tempfile.NamedTemporaryFile("w+", prefix="shoal-rank-", suffix=".log")
        self.codes = []  # of the ends so far
        self.closing = threading.Event()
        self.process = self._start()
        self.thread = threading.Thread(target=self._supervise, daemon=True)
        self.thread.start()

    def _start(self):
        return subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT)

    def _supervise(self):
        while True:
            self.codes.append(self.process.wait())
            if self.closing.wait(0.2):
                return
            self.process = self._start()

    def output(self):
        return Path(self.log.name).read_text()

    def close(self):
        self.closing.set()
        self.process.kill()
        self.thread.join(20)


class Cluster:
    """hosts: of each rank, the host's number; rank 0 must be on host 0, which starts its other ranks itself."""

    def __init__(self, network, model, hosts, *flags):
        self.network, self.model, self.hosts = network, model, hosts
        self.flags = flags
        self.token = tempfile.NamedTemporaryFile("w", prefix="shoal-token-")
        self.token.write(secrets.token_hex(32))
        self.token.flush()
        self.ranks = {}
        self.server = None

    def __enter__(self):
        join = f"{self.network.address(0)}:{PORT}"
        local = self.hosts.count(0)
        try:
            for rank, host in enumerate(self.hosts):
                if rank >= local:
                    command = [*self.network.inside(host), BINARY, "rank", "--join", join, "--token-file", self.token.name,
                               "--threads", 1, "--rank", rank]
                    self.ranks[rank] = Rank([str(word) for word in command])
            self.start_head()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_head(self):
        address = self.network.address(0)
        self.server = Server(self.model, "--served-model-name", "small", "--threads", 1, "--listen-ranks",
                             f"{address}:{PORT}", "--token-file", self.token.name, "--local-ranks", self.hosts.count(0),
                             *self.flags, inside=self.network.inside(0), host=address)

    def __exit__(self, *_):
        for rank in self.ranks.values():
            rank.closing.set()
        if self.server is not None and self.server.process.poll() is None:
            self.server.stop()
        for rank in self.ranks.values():
            rank.close()

    def network_bytes(self):
        """What the ledger says has left each host, once it says so twice."""
        deadline = time.monotonic() + 20
        last = None
        while time.monotonic() < deadline:
            sums = [0] * (max(self.hosts) + 1)
            for rank in self.server.worker()["ranks"]:
                sums[self.hosts[rank["rank"]]] += sum(each["network_bytes"] for each in rank["traffic"].values())
            if sums == last:
                return sums
            last = sums
            time.sleep(1.1)  # two beats, in which a rank reports what has changed
        raise AssertionError(f"the ledger does not come to rest: {last}")

    def expect_answers_over_the_network(self, expected):
        """The hosts' interfaces are witness that what the ledger claims has crossed them."""
        before = [self.network.sent(host) for host in range(3)]
        assert answers(self.server) == expected, self.logs()
        ledger = self.network_bytes()
        assert sum(ledger) > 100_000
        for host, claimed in enumerate(ledger):
            assert self.network.sent(host) - before[host] >= 0.95 * claimed, (host, claimed)

    def logs(self):
        return self.server.output() + "".join(f"--- rank {number}\n{rank.output()}" for number, rank in self.ranks.items())
