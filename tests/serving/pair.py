"""A prefill and a decode worker and the front that drives both, as processes of a test."""
import subprocess
import tempfile
import time

from server import BINARY, Server


def body_of(prompt, tokens, **more):
    return {"model": "small", "prompt": prompt, "max_tokens": tokens, "seed": 7, "temperature": 0.9, "logprobs": 3, **more}


def answers(answer):
    assert "choices" in answer, answer
    return [(c["text"], c["finish_reason"], c["logprobs"]["token_logprobs"]) for c in answer["choices"]], answer["usage"]["completion_tokens"]


class Pair:
    """Prefill worker, decode worker, and the front. network: the workers run on its first two hosts."""

    def __init__(self, model, token, prefill=(), decode=(), network=None):
        flags = ("--served-model-name", "small", "--deterministic", "--token-file", token, "--threads", 1)
        hosts = [{"inside": network.inside(host), "host": network.address(host)} if network else {} for host in (0, 1)]
        self.prefill = Server(model, *flags, "--role", "prefill", "--bootstrap-port", 0, *prefill, **hosts[0])
        self.decode = Server(model, *flags, "--role", "decode", *decode, **hosts[1])
        self.bootstrap = self.prefill.get("/get_server_info")[1]["bootstrap_port"]
        self.front = Front(self.prefill.url, self.decode.url, self.bootstrap)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (self.front, self.decode, self.prefill):
            process.__exit__()

    def wait_idle(self, seconds=5):
        """Until neither worker has a request, a held page or an open room."""
        deadline = time.monotonic() + seconds
        while True:
            infos = [server.get("/get_server_info")[1] for server in (self.prefill, self.decode)]
            busy = sum(info["num_requests_running"] + info["num_requests_waiting"] + sum(kv["held"] for kv in info["kv_pages"]) +
                       sum(info["rooms"][state] for state in ("bootstrapping", "waiting", "transferring")) for info in infos)
            if busy == 0:
                return
            assert time.monotonic() < deadline, [(info["rooms"], info["num_requests_waiting"], info["num_requests_running"],
                                                  info["kv_pages"]) for info in infos]
            time.sleep(0.02)


class Front(Server):
    def __init__(self, prefill, decode, bootstrap):
        self.host, self.tls = "127.0.0.1", None
        self.log = tempfile.NamedTemporaryFile("w+", prefix="shoal-pair-", suffix=".log")
        self.process = subprocess.Popen(
            [BINARY, "pair", "--prefill", prefill, "--decode", decode, "--bootstrap-port", str(bootstrap), "--port", "0"],
            stdout=self.log, stderr=subprocess.STDOUT)
        self.url = self._wait_until_listening(20)
        self.port = int(self.url.rsplit(":", 1)[1])
