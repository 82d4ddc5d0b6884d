"""HTTPS: files that fit, files that do not, and a sample of the hostile tests over it."""
import json
import socket
import ssl
import subprocess
import urllib.request

import pytest

from server import BINARY, Server
from test_hostile_http import (  # noqa: F401 - collected here too, with the fixture `small` below
    http, read_all, read_response, serves_afterwards,
    test_a_client_that_leaves_while_waiting, test_a_connection_that_says_nothing_is_not_in_the_way, test_a_name_stands_for_all_prompts_of_its_request,
    test_an_oversized_body_is_413, test_bytes_that_are_not_http, test_half_a_request_then_gone, test_oversized_headers_are_431,
    test_pipelined_requests_are_answered_in_order)


@pytest.fixture(scope="module")
def small(small_model, certificates):
    with Server(small_model, "--served-model-name", "small", certificates=certificates) as server:
        yield server


def test_the_url_says_https(small):
    assert small.url.startswith("https://127.0.0.1:")


def test_a_stream_over_tls_ends_with_done_and_a_farewell(small):
    body = json.dumps({"prompt": "Once", "max_tokens": 200, "ignore_eos": True, "stream": True}).encode()
    with small.connect() as connection:
        connection.sendall(http(body, extra=b"Connection: close\r\n"))
        answer = read_all(connection)
        assert b"[DONE]" in answer
        assert connection.version() in ("TLSv1.2", "TLSv1.3")


def test_plain_http_gets_a_plain_answer(small):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(small.url.replace("https://", "http://") + "/health", timeout=20)
    assert caught.value.code == 400
    assert "https://" in json.loads(caught.value.read())["error"]["message"]


def test_a_stranger_does_not_trust_it(small):
    with pytest.raises(ssl.SSLCertVerificationError), socket.create_connection(("127.0.0.1", small.port), timeout=20) as connection:
        ssl.create_default_context().wrap_socket(connection, server_hostname="127.0.0.1")


def test_half_a_handshake_then_gone(small):
    for hello in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x16\x03\x01\xff\xff" + b"\x00" * 3000):
        with socket.create_connection(("127.0.0.1", small.port), timeout=20) as connection:
            connection.sendall(hello)
    assert small.get("/health")[0] == 200


def test_sigterm_finishes_what_runs_over_tls(small_model, certificates):
    with Server(small_model, certificates=certificates) as server, server.connect() as connection:
        connection.sendall(http(json.dumps({"prompt": "Once", "max_tokens": 300, "ignore_eos": True, "stream": True}).encode()))
        connection.recv(1000)
        server.process.terminate()
        assert b"[DONE]" in read_all(connection, 30)
        assert server.process.wait(30) == 0


def serve(*flags):
    return subprocess.run([BINARY, "serve", "no-such-model.gguf", "--port", "0", *map(str, flags)], capture_output=True, text=True, timeout=60)


def test_wrong_files_are_one_sentence_at_start(certificates, tmp_path):
    other = tmp_path / "other.key"
    subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", other], check=True, capture_output=True)
    prose = tmp_path / "prose.pem"
    prose.write_text("not a certificate")
    certificate, key = certificates / "server.pem", certificates / "server.key"
    for cert, key_file, said in ((tmp_path / "none", key, "No such file"), (prose, key, "no certificate in PEM"), (certificate, prose, "no private key in PEM"),
                                 (certificate, tmp_path / "none", "No such file"), (certificate, other, "does not belong to the certificate")):
        run = serve("--tls-cert", cert, "--tls-key", key_file)
        assert run.returncode == 1 and said in run.stderr and run.stderr.count("\n") == 1, run.stderr


def test_a_certificate_without_its_key_is_a_usage_error(certificates):
    assert serve("--tls-cert", certificates / "server.pem").returncode == 2


def test_bench_serve_over_tls(small, certificates):
    flags = ["bench", "serve", "--url", small.url, "--rate", "50", "--requests", "3", "--prompt-tokens", "4", "--max-tokens", "3"]
    trusted = subprocess.run([BINARY, *flags, "--ca-file", certificates / "server.pem"], capture_output=True, text=True, timeout=60)
    assert trusted.returncode == 0 and "3 answered" in trusted.stdout, trusted.stdout + trusted.stderr
    stranger = subprocess.run([BINARY, *flags], capture_output=True, text=True, timeout=60)
    assert stranger.returncode == 1 and "--ca-file" in stranger.stdout
