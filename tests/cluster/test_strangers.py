"""What does not belong to a worker is told so in one sentence, and never keeps it waiting. Hosts are names on this one."""
import socket
import subprocess
import threading
import time

import pytest

from asking import PROMPTS, ask
from ports import free_port
from server import BINARY, Server


class Worker:
    """Rank 0 of two with a port for others; made in a thread, since it only starts once rank 1 has come."""

    def __init__(self, model, folder, *flags):
        self.port = free_port()
        self.token = folder / "token"
        self.token.write_text("0123456789abcdef")
        self.server, self.failure = None, None
        self.ranks = []

        def start():
            try:
                self.server = Server(model, "--served-model-name", "small", "--tp", 2, "--threads", 1, "--listen-ranks",
                                     f"127.0.0.1:{self.port}", "--token-file", self.token, "--join-seconds", 20, *flags)
            except RuntimeError as failure:
                self.failure = str(failure)

        self.thread = threading.Thread(target=start, daemon=True)
        self.thread.start()
        deadline = time.monotonic() + 20
        while socket.socket().connect_ex(("127.0.0.1", self.port)) != 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def rank(self, *flags, token=None):
        rank = subprocess.Popen([BINARY, "rank", "--join", f"127.0.0.1:{self.port}", "--token-file", token or self.token,
                                 "--threads", "1", "--log-level", "error", *map(str, flags)],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.ranks.append(rank)
        return rank

    def refused(self, *flags, **options):
        """What a rank says that ends with 1."""
        rank = self.rank(*flags, **options)
        said, _ = rank.communicate(timeout=30)
        assert rank.returncode == 1, said
        return said

    def ready(self):
        self.thread.join(60)
        assert self.server is not None, self.failure
        return self.server

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.server is not None and self.server.process.poll() is None:
            self.server.stop()
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait(10)


def test_strangers_do_not_keep_the_start_waiting(small_model, tmp_path):
    other = tmp_path / "other"
    other.write_text("fedcba9876543210")
    with Worker(small_model, tmp_path) as worker:
        silent = [socket.create_connection(("127.0.0.1", worker.port)) for _ in range(20)]
        for junk in (b"\0" * 8, b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", b"\x21\0\0\0\x01\0\x01\0\x01" + b"n" * 31):
            with socket.create_connection(("127.0.0.1", worker.port)) as stranger:
                stranger.sendall(junk)
        assert "holds another cluster token: start both with the same" in worker.refused(token=other)
        assert "there is no rank 7 to join as" in worker.refused("--rank", 7)
        rank = worker.rank("--host-id", "b")
        server = worker.ready()
        assert ask(server, PROMPTS[0], 0)[0]
        assert "rank 1 has joined already: two ranks have one number" in worker.refused("--rank", 1)
        assert "all 2 ranks of the layout" in worker.refused()
        assert server.worker()["epoch"] == 1
        for connection in silent:
            connection.close()
        assert server.stop() == 0
        assert rank.wait(10) == 0


def test_a_rank_of_another_model_ends_the_start(small_model, tiny_model, tmp_path):
    with Worker(small_model, tmp_path) as worker:
        worker.rank("--model", tiny_model, "--host-id", "b")
        worker.thread.join(60)
        assert worker.server is None
        assert "shoal serve: rank 1 holds model " in worker.failure and "start all from the same" in worker.failure


def test_a_rank_whose_model_is_missing_ends_the_start(small_model, tmp_path):
    with Worker(small_model, tmp_path) as worker:
        rank = worker.rank("--model", "missing.gguf")
        worker.thread.join(60)
        assert worker.server is None and "missing.gguf" in worker.failure
        said, _ = rank.communicate(timeout=30)
        assert rank.returncode == 1 and "missing.gguf" in said


def test_a_rank_of_another_model_is_turned_away_later_and_the_right_one_is_taken(small_model, tiny_model, tmp_path):
    with Worker(small_model, tmp_path) as worker:
        first = worker.rank("--host-id", "b")
        server = worker.ready()
        expected = ask(server, PROMPTS[0], 0)
        first.kill()
        deadline = time.monotonic() + 10
        while server.get("/health")[0] == 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "rank 1 holds model " in worker.refused("--model", tiny_model, "--host-id", "b")
        worker.rank("--host-id", "b")
        while server.get("/health")[0] != 200:
            assert time.monotonic() < deadline + 30
            time.sleep(0.05)
        assert ask(server, PROMPTS[0], 0) == expected


@pytest.mark.parametrize("flags, sentence", [
    (("--join", "nowhere"), "--join: 'nowhere' is not an address HOST:PORT"),
    (("--join", "127.0.0.1:9", "--advertise", "here:port"), "--advertise: 'here:port' is not an address HOST:PORT"),
])
def test_addresses_that_are_none_are_usage(tmp_path, flags, sentence):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    done = subprocess.run([BINARY, "rank", "--token-file", token, *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and sentence in done.stderr
