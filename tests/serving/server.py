"""Starts and stops `shoal serve` for tests, and talks to it over HTTP or HTTPS."""
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("SHOAL_BINARY", ROOT / "build/release/shoal"))
SHARED = Path(os.environ.get("SHOAL_SHARED", ROOT.parent / "shared"))
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "shoal"
DEMO_MODEL = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"
SMALL_MODEL = SHARED / "models/stories260k/stories260K-f32.gguf"


def skip_unbuilt(items):
    """Marks all tests of a folder as skipped where there is no program to test."""
    if not BINARY.exists():
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"{BINARY} is not built"))


class Server:
    """One `shoal serve` process. Use as a context manager; `stop` returns its exit code.

    certificates: from the fixture of that name; then it serves HTTPS. inside: what the command is started with,
    to run it on another host; host: the address it listens on there. command: what is served instead of a model,
    which then is None; port: a fixed one."""

    def __init__(self, model, *flags, start_seconds=120, certificates=None, inside=(), host="127.0.0.1", command="serve", port=0):
        self.host = host
        self.tls = None
        if certificates is not None:
            flags = (*flags, "--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key")
            self.tls = ssl.create_default_context(cafile=certificates / "server.pem")
        self.log = tempfile.NamedTemporaryFile("w+", prefix="shoal-serve-", suffix=".log")
        self.process = subprocess.Popen(
            [*inside, BINARY, command, *([] if model is None else [model]), "--host", host, "--port", str(port), *map(str, flags)],
            stdout=self.log, stderr=subprocess.STDOUT)
        self.url = self._wait_until_listening(start_seconds)
        self.port = int(self.url.rsplit(":", 1)[1])

    def _wait_until_listening(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = re.search(r"^listening on (https?://\S+)", self.output(), re.M)
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.process.kill()
        raise RuntimeError("it did not start; it said:\n" + self.output())

    def output(self):
        return Path(self.log.name).read_text()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def stop(self, seconds=30):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def connect(self):
        connection = socket.create_connection((self.host, self.port), timeout=20)
        return self.tls.wrap_socket(connection, server_hostname="127.0.0.1") if self.tls else connection

    def request(self, path, body=None, method=None, headers=None, timeout=120):
        """(status, parsed JSON or text). An error status is an answer, not an exception."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **(headers or {})},
                                         method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self.tls) as response:
                status, raw = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, raw = error.code, error.read()
        try:
            return status, json.loads(raw)
        except ValueError:
            return status, raw.decode()

    def post(self, path, body, **options):
        return self.request(path, body, **options)

    def get(self, path, **options):
        return self.request(path, **options)

    def stream(self, prompt, model="small", tokens=400, headers=None):
        """A long streamed answer that has begun."""
        return Stream(self, prompt, model, tokens, headers or {})

    def worker(self):
        """Epoch and ranks, from /get_server_info."""
        return self.get("/get_server_info")[1]["worker"]

    def pages(self):
        """The pool's pages by state, summed over KV groups, from /get_server_info."""
        groups = self.get("/get_server_info")[1]["kv_pages"]
        return {state: sum(group[state] for group in groups) for state in ("capacity", "free", "cached", "held", "fenced")}

    def wait_idle(self, seconds=30):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            info = self.get("/get_server_info")[1]
            held = sum(group["held"] for group in info["kv_pages"])  # until the plans in flight have been answered
            if info["num_requests_running"] == 0 and info["num_requests_waiting"] == 0 and held == 0:
                return
            time.sleep(0.02)
        raise AssertionError("requests are still running: " + json.dumps(info))

    def rss_anon_kib(self):
        return int(re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())[1])


class Stream:
    """A streamed completion; opened, its first byte is there."""

    def __init__(self, server, prompt, model, tokens, headers):
        body = json.dumps({"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True,
                           "n": 8}).encode()
        self.client = server.connect()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
        self.client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n" % (lines, len(body)) + body)
        self.seen = self.client.recv(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()

    def until_error(self):
        """The sentence of the error that ends the answer."""
        return self._until(rb'data: \{"error":.*?"message":"(.*?)"')[1].decode()

    def until_done(self):
        """All that came of an answer that ends well."""
        self._until(rb"data: \[DONE\]")
        assert b'data: {"error"' not in self.seen, self.seen[-300:]
        return self.seen

    def _until(self, pattern):
        while True:
            found = re.search(pattern, self.seen, re.S)
            if found:
                return found
            data = self.client.recv(65536)
            assert data, f"the stream ended before {pattern}: ...{self.seen[-300:]}"
            self.seen += data
