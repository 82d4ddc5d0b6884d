"""`shoal up` and `shoal down`: a described cluster comes up, is kept running, and ends."""
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from asking import ask
from ports import free_port, free_ports
from server import BINARY, Server


class Up:
    """`shoal up` on a file of this text."""

    def __init__(self, folder, text):
        self.file = folder / "cluster.toml"
        self.file.write_text(text)
        self.log = open(folder / "up.out", "w+")
        self.process = subprocess.Popen([BINARY, "up", self.file], stdout=self.log, stderr=subprocess.STDOUT)

    def output(self):
        return Path(self.log.name).read_text()

    def wait_for(self, pattern, seconds=60):
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.output(), re.M):
            assert time.monotonic() < deadline and self.process.poll() is None, self.everything()
            time.sleep(0.05)

    def everything(self):
        logs = sorted((self.file.parent / "logs").glob("*.log"))
        return self.output() + "".join(f"--- {log.name}\n{log.read_text()}" for log in logs)

    def down(self):
        return subprocess.run([BINARY, "down", self.file], capture_output=True, text=True, timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise


class Answers(Server):
    """The server that `shoal up` keeps running."""

    def __init__(self, host, port):  # no process of its own
        self.tls, self.host, self.port, self.url = None, host, port, f"http://{host}:{port}"


def pids(up):
    return {int(pid) for pid in subprocess.run(["pgrep", "-P", str(up.process.pid)], capture_output=True, text=True)
            .stdout.split()}


@pytest.mark.parametrize("degree", ["tp", "cp"])
def test_ranks_of_this_host(small_model, tmp_path, degree):
    port = free_port()
    with Up(tmp_path, f'model = "{small_model}"\n{degree} = 2\nport = {port}\n'
                      'flags = ["--served-model-name", "small", "--threads", "1"]\n') as up:
        up.wait_for(rf"ready: http://127.0.0.1:{port}$")
        server = Answers("127.0.0.1", port)
        assert [rank["state"] for rank in server.worker()["ranks"]] == ["ready", "ready"]
        assert ask(server, "Once upon a time", 0)[0]
        again = subprocess.run([BINARY, "up", up.file], capture_output=True, text=True, timeout=30)
        assert again.returncode == 1 and f"is up already, by process {up.process.pid}" in again.stderr
        done = up.down()
        assert done.returncode == 0, done.stderr
        assert up.process.wait(5) == 0
        assert "down: all have ended" in up.output()
    done = up.down()
    assert done.returncode == 1 and "is not up" in done.stderr


def test_a_gateway_in_front_of_two_servers(small_model, tmp_path):
    """A server that is killed is started again; until then the other answers."""
    first, front = free_ports(2), free_port()
    with Up(tmp_path, f'model = "{small_model}"\nport = {first}\nservers = 2\nflags = ["--served-model-name", "small", "--threads", "1"]\n'
                      f'[gateway]\nport = {front}\n') as up:
        up.wait_for(rf"ready: http://127.0.0.1:{front}$")
        gateway = Answers("127.0.0.1", front)
        want = ask(gateway, "Once upon a time", 0)
        victim = next(pid for pid in pids(up) if str(first + 1) in Path(f"/proc/{pid}/cmdline").read_text().split("\0"))
        os.kill(victim, signal.SIGKILL)
        up.wait_for(r"server 2 .*; started again")
        for _ in range(4):
            assert ask(gateway, "Once upon a time", 0) == want
        deadline = time.monotonic() + 60
        while gateway.get("/health")[1].get("available") != 2:
            assert time.monotonic() < deadline, up.everything()
            time.sleep(0.05)
        done = up.down()
        assert done.returncode == 0 and up.process.wait(5) == 0, up.everything()


@pytest.mark.parametrize("more, part", [
    ("servers = 2\n", "need a [gateway]"), ("port = 8000\n[gateway]\nport = 8000\n", "is a server's, too"),
    ("servers = 2\nport = 65535\n[gateway]\n", "no such ports"), ("[gateway]\nports = 3\n", "there is no 'ports' here"),
    ("prefill = 1\n[gateway]\n", "need each other"), ("prefill = 1\ndecode = 1\n", "need a [gateway]"),
    ("prefill = 1\ndecode = 1\nport = 7999\n[gateway]\nport = 8000\n", "is a server's, too"), ('decode_flags = ["--x"]\n', "would go nowhere")])
def test_a_gateway_that_cannot_be(tmp_path, more, part):
    with Up(tmp_path, f'model = "x.gguf"\n{more}') as up:
        assert up.process.wait(30) == 1
        assert part in up.output()


def test_what_ends_is_started_again(network, small_model, tmp_path):
    """Hosts are namespaces. A rank is killed, then the server: degraded, down, and ready again each time."""
    address = network.address(0)
    inside = [str(network.inside(host)).replace("'", '"') for host in range(3)]
    with Up(tmp_path, f'''
model = "{small_model}"
pp = 3
host = "{address}"
port = 8000
join = "{address}:7000"
flags = ["--served-model-name", "small"]
[[hosts]]
start = {inside[0]}
threads = 1
[[hosts]]
name = "b"
start = {inside[1]}
threads = 1
[[hosts]]
name = "c"
start = {inside[2]}
threads = 1
''') as up:
        up.wait_for(r"ready: ")
        assert (tmp_path / "cluster.token").stat().st_mode & 0o777 == 0o600
        server = Answers(address, 8000)
        first = ask(server, "Once upon a time", 0)
        ranks = server.worker()["ranks"]
        os.kill(ranks[2]["pid"], signal.SIGKILL)
        up.wait_for(r"rank 2 on c was killed by signal 9; started again$")
        deadline = time.monotonic() + 30
        while server.worker()["epoch"] != 2 or server.get("/health")[0] != 200:  # it may take less than a look
            assert time.monotonic() < deadline, up.everything()
            time.sleep(0.05)
        assert ask(server, "Once upon a time", 0) == first
        os.kill(ranks[0]["pid"], signal.SIGKILL)
        up.wait_for(r"down: server was killed by signal 9; started again$")
        up.wait_for(r"down: server was killed[^\0]*ready: ")
        assert ask(server, "Once upon a time", 0) == first
        children = pids(up)
        assert len(children) == 3
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(40) == 0, up.everything()
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_cluster_that_cannot_come_to_be_says_why(tmp_path, small_model):
    with Up(tmp_path, 'model = "missing.gguf"\n') as up:
        assert up.process.wait(30) == 1
        assert re.search(r"^shoal up: server ended with exit code 1: shoal serve: .*missing.gguf", up.output(), re.M)
    with Up(tmp_path, f'model = "{small_model}"\ntp = 2\njoin = "127.0.0.1:{free_port()}"\nport = {free_port()}\n'
                      '[[hosts]]\n[[hosts]]\nstart = ["no-such-command"]\n') as up:
        assert up.process.wait(30) == 1
        assert "no-such-command: No such file or directory" in up.output()


@pytest.mark.parametrize("text, sentence", [
    ('tp = 2', "'model' is needed"),
    ('model = "m"\ntp = "two"', ":2: 'tp' must be a number from 1 to 64"),
    ('model = "m"\nmodle = 1', ":2: there is no 'modle' here; known: "),
    ('model = "m"\ntp = 2\n[[hosts]]\nranks = 3', "tp 2, pp 1 and cp 1 take 2 ranks, the hosts have 3"),
    ('model = "m"\ncp = 2\n[[hosts]]\nranks = 3', "tp 1, pp 1 and cp 2 take 2 ranks, the hosts have 3"),
    ('model = "m"\ndp = 2', "dp 2 is not served by this build: use dp 1 with tp, pp and cp"),
    ('model = "m"\nep = 2', "ep 2 is not served by this build: use ep 1 with tp, pp and cp"),
    ('model = "m"\ntp = 2\n[[hosts]]\n[[hosts]]', "several hosts need 'join'"),
    ('model = "m"\ntp = 2\njoin = "here"\n[[hosts]]\n[[hosts]]', "'here' is not an address HOST:PORT"),
    ('model = "m"\n[[hosts]]\nstart = "ssh b"', ":3: 'start' must be a list of strings"),
    ('model = "m"\nhosts = 3', ":2: 'hosts' must be tables, each begun by [[hosts]]"),
    ('model = "m"\n[[hosts]]\nflags = ["--threads", "2"]', ":3: the first host's 'flags' would go nowhere"),
    ('model = "m"\njoin = "127.0.0.1:7000"', "'join' is for several hosts"),
    ('model = "m"\ntoken_file = "t"', "'token_file' is for several hosts"),
    ('model = "m"\n[[hosts]]\ntoken_file = "t"', "'token_file' is for several hosts"),
    ('model = "m"\ntoken_file = ""', ":2: 'token_file' must be a string, and not an empty one"),
    ('model = "m"\nlogs = ""', ":2: 'logs' must be a string, and not an empty one"),
    ('model = ', ":1: "),
    ('model = "m"\ntp = true', ":2: 'tp' must be a number from 1 to 64"),
    ('model = "m"\nport = 7801.0', ":2: 'port' must be a number from 1 to 65535"),
    ('model = "m\\u0000n"', ":1: 'model' must be text without a zero byte"),
    ('model = "m"\n[[hosts]]\nstart = [""]', ":3: 'start' must be a command and its words"),
])
def test_mistakes_in_the_file_are_one_sentence(tmp_path, text, sentence):
    file = tmp_path / "cluster.toml"
    file.write_text(text)
    for command in ("up", "down"):
        done = subprocess.run([BINARY, command, file], capture_output=True, text=True, timeout=30)
        assert done.returncode == 1
        assert done.stderr.startswith(f"shoal {command}: {file}") and sentence in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1


def test_another_servers_port_is_not_taken_for_the_clusters(small_model, tmp_path):
    with Server(small_model) as other:
        with Up(tmp_path, f'model = "{small_model}"\nport = {other.port}\n') as up:
            assert up.process.wait(30) == 1
            assert f"http://127.0.0.1:{other.port} answers already" in up.output(), up.everything()
            assert not (tmp_path / "logs" / "server.log").exists()


def test_what_a_start_command_leaves_behind_ends_with_it(small_model, tmp_path):
    """A shell that does not become its program: SIGTERM ends the shell alone."""
    port = free_port()
    with Up(tmp_path, f'model = "{small_model}"\nport = {port}\n[[hosts]]\nstart = ["sh", "-c", "\\"$@\\"; exit $?", "x"]\n') as up:
        up.wait_for(r"ready: ")
        (shell,) = pids(up)
        inside = subprocess.run(["pgrep", "-P", str(shell)], capture_output=True, text=True).stdout.split()
        assert len(inside) == 1
        up.process.terminate()
        assert up.process.wait(40) == 0, up.everything()
        deadline = time.monotonic() + 10
        while Path(f"/proc/{inside[0]}").exists():  # until init has taken it
            assert time.monotonic() < deadline, "the server is still there"
            time.sleep(0.05)


def test_a_log_that_cannot_be_opened_again_does_not_end_a_running_cluster(small_model, tmp_path):
    port = free_port()
    with Up(tmp_path, f'model = "{small_model}"\nport = {port}\n') as up:
        up.wait_for(r"ready: ")
        (server,) = pids(up)
        (tmp_path / "logs" / "server.log").unlink()
        (tmp_path / "logs" / "server.log").mkdir()
        os.kill(server, signal.SIGKILL)
        up.wait_for(r"server.log cannot be written: Is a directory$")
        (tmp_path / "logs" / "server.log").rmdir()
        up.wait_for(r"cannot be written[^\0]*ready: ")


def test_a_pipe_as_log_is_refused(small_model, tmp_path):
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs" / "server.log")
    with Up(tmp_path, f'model = "{small_model}"\nport = {free_port()}\n') as up:
        assert up.process.wait(30) == 1
        assert "server.log cannot be written" in up.output()


def test_a_rank_that_hangs_before_it_joins_is_told_to_end(small_model, tmp_path):
    with Up(tmp_path, f'''
model = "{small_model}"
tp = 2
port = {free_port()}
join = "127.0.0.1:{free_port()}"
[[hosts]]
[[hosts]]
start = ["sh", "-c", "exec sleep 300"]
''') as up:
        up.wait_for(r"starting: http://127.0.0.1:.*: ", 30)  # says what it waits for
        begin = time.monotonic()
        assert up.down().returncode == 0
        assert up.process.wait(5) == 0 and "down: all have ended" in up.output(), up.everything()
        assert time.monotonic() - begin < 8


def test_a_refused_flag_is_the_sentence(small_model, tmp_path):
    with Up(tmp_path, f'model = "{small_model}"\nport = {free_port()}\nflags = ["--nonsense"]\n') as up:
        assert up.process.wait(30) == 1
        assert "--nonsense" in up.output().splitlines()[-1], up.output()


@pytest.mark.parametrize("seconds", ["-5", "nan", "inf", "1e300"])
def test_down_takes_a_time_that_is_one(tmp_path, seconds):
    done = subprocess.run([BINARY, "down", tmp_path / "x.toml", f"--seconds={seconds}"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "--seconds" in done.stderr
