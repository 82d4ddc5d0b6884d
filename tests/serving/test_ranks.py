"""`shoal serve` over several ranks as processes: the answers of one rank, and an end with a sentence."""
import math
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from server import BINARY, Server

LAYOUTS = [("--tp", 2), ("--tp", 3), ("--pp", 2), ("--pp", 3), ("--tp", 2, "--pp", 2)]
PROMPTS = ["Once upon a time", "The dog", "Lily and Ben went to the park. " * 12]


def ask(server, prompt, seed):
    status, body = server.post("/v1/completions", {
        "model": "small", "prompt": prompt, "max_tokens": 24, "temperature": 0.8 if seed else 0, "seed": seed,
        "logprobs": 4, "ignore_eos": True})
    assert status == 200, body
    choice = body["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]


def answers(server):
    return [ask(server, prompt, seed) for seed, prompt in enumerate(PROMPTS)] + [ask(server, PROMPTS[2], 0)]


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def gone(pid):
    """Ended, or only waiting to be reaped by whoever inherited it."""
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def ranks_of(server):
    """The processes of the other ranks: children of any of the server's threads."""
    pids = []
    for thread in os.listdir(f"/proc/{server.process.pid}/task"):
        with open(f"/proc/{server.process.pid}/task/{thread}/children") as children:
            pids += map(int, children.read().split())
    return pids


@pytest.fixture(scope="module")
def one_rank(small_model):
    with Server(small_model, "--served-model-name", "small", "--deterministic", "--threads", 1) as server:
        return answers(server)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda flags: "".join(map(str, flags)).replace("--", ""))
def test_every_layout_gives_one_ranks_answers(small_model, one_rank, layout):
    with Server(small_model, "--served-model-name", "small", "--deterministic", "--threads", 1, *layout) as server:
        assert answers(server) == one_rank
        pids = ranks_of(server)
        assert len(pids) + 1 == math.prod(layout[1::2])
        server.wait_idle()
        assert server.stop() == 0
    assert all(gone(pid) for pid in pids)


def test_the_demo_model_over_two_ranks(demo_model):
    """9 query heads over 2 ranks, a vocabulary of 49,152 cut in two."""
    question = {"model": "demo", "messages": [{"role": "user", "content": "Name three colours."}],
                "max_tokens": 16, "temperature": 0}
    texts = []
    for layout in ((), ("--tp", 2), ("--pp", 2)):
        with Server(demo_model, "--served-model-name", "demo", "--deterministic", "--threads", 1, "--ctx", 512,
                    *layout) as server:
            status, body = server.post("/v1/chat/completions", question)
            assert status == 200, body
            texts.append(body["choices"][0]["message"]["content"])
    assert texts[0] and texts[1] == texts[0] and texts[2] == texts[0]


LOSSES = pytest.mark.parametrize("lost_by", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "stop"])


@LOSSES
def test_a_lost_rank_is_replaced_and_the_next_request_is_right(small_model, one_rank, lost_by):
    """kill -9 and SIGSTOP in the middle of an answer whose gateway goes on elsewhere: a clean error within 5 s, then the same
    answers as ever."""
    with Server(small_model, "--served-model-name", "small", "--deterministic", "--tp", 3, "--threads", 1) as server:
        capacity = server.pages()["capacity"]
        with server.stream("Once", headers={"X-Shoal-Inner": "1"}) as answer:
            pids = ranks_of(server)
            lost_at = time.monotonic()
            os.kill(pids[0], lost_by)
            error = answer.until_error()
            assert time.monotonic() - lost_at < 5
        assert f"(process {pids[0]}): " in error
        wait_until(lambda: server.get("/health")[0] == 200, 20, server.output())
        assert server.worker()["epoch"] == 2 and "shoal_worker_epoch 2" in server.get("/metrics")[1]
        assert answers(server) == one_rank
        server.wait_idle()
        pages = server.pages()
        assert pages["free"] + pages["cached"] == capacity
        assert server.post("/flush_cache", {})[0] == 200 and server.pages()["free"] == capacity
        assert gone(pids[0]) and len(ranks_of(server)) == 2
        assert server.stop() == 0


@LOSSES
def test_an_answer_outlives_a_lost_rank(small_model, lost_by):
    """It goes on where it was, nothing lost or doubled; its usage is that of an answer without such luck."""
    question = {"model": "small", "prompt": "Lily and Ben", "max_tokens": 300, "temperature": 0.9, "seed": 7, "ignore_eos": True,
                "logprobs": 2, "n": 2}
    with Server(small_model, "--served-model-name", "small", "--deterministic", "--threads", 1, "--tp", 3) as server:
        expected = server.post("/v1/completions", question)
        assert expected[0] == 200
        got = []
        thread = threading.Thread(target=lambda: got.append(server.post("/v1/completions", question)))
        with server.stream("Once") as stream:
            thread.start()
            wait_until(lambda: server.get("/get_server_info")[1]["num_requests_running"] > 8, 20, "nothing runs")
            os.kill(ranks_of(server)[0], lost_by)
            assert stream.until_done()
        thread.join(60)
        assert server.worker()["epoch"] == 2
        status, body = got[0]
        assert status == 200, body
        assert body["choices"] == expected[1]["choices"] and body["usage"] == expected[1]["usage"]
        assert server.stop() == 0


def test_a_rank_lost_while_draining_holds_the_answer_up_and_the_drain_ends(small_model):
    with Server(small_model, "--served-model-name", "small", "--tp", 2, "--threads", 1) as server:
        with server.stream("Once") as answer:
            pids = ranks_of(server)
            os.kill(pids[0], signal.SIGSTOP)  # the answer can neither go on nor end
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "serve.draining" in server.output(), 20, "the drain did not begin")
            os.kill(pids[0], signal.SIGKILL)
            assert answer.until_done()
            assert server.process.wait(20) == 0
        assert "serve.stopped" in server.output(), "the drain ran to its end"


def test_ranks_end_when_their_head_is_killed(small_model):
    with Server(small_model, "--served-model-name", "small", "--pp", 2, "--threads", 1) as server:
        pids = ranks_of(server)
        server.process.kill()
        server.process.wait(10)
        wait_until(lambda: all(gone(pid) for pid in pids), 10, "a rank outlives its head")


@pytest.mark.parametrize("flags, sentence", [
    (("--tp", 9), "tp 9: the attention output can be cut into 8 parts only; the nearest degree is tp 8"),
    (("--pp", 6), "pp 6: the model has 5 layers, and every stage needs one; the nearest degree is pp 5"),
    (("--pp", 2, "--layers", "1,1"), "--layers 1,1 does not deal the model's 5 layers to 2 stages; 2,3 would"),
])
def test_impossible_layouts_are_one_sentence_at_start(small_model, flags, sentence):
    done = subprocess.run([BINARY, "serve", small_model, "--port", "0", "--log-level", "error", *map(str, flags)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"shoal serve: {sentence}"], "no rank was started"


def test_a_rank_without_a_head_or_with_a_wrong_token_says_so(small_model, tmp_path):
    token = tmp_path / "token"
    token.write_text("short")
    done = subprocess.run([BINARY, "rank", "--join", "127.0.0.1:9", "--token-file", token], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1 and "16 to 4096 bytes" in done.stderr
    done = subprocess.run([BINARY, "rank", "--join", "nowhere"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--token-file is needed" in done.stderr


def test_a_reader_of_the_log_that_goes_away_costs_nothing(small_model):
    """Ranks write to the server's log: a broken pipe must end neither them nor those that replace them."""
    process = subprocess.Popen([BINARY, "serve", small_model, "--port", "0", "--served-model-name", "small", "--tp", "2",
                                "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        process.stderr.close()
        server = Server.__new__(Server)
        server.tls, server.host, server.port, server.url = None, "127.0.0.1", port, f"http://127.0.0.1:{port}"
        first = ask(server, PROMPTS[0], 0)
        os.kill(server.worker()["ranks"][1]["pid"], signal.SIGKILL)
        wait_until(lambda: server.worker()["epoch"] == 2 and server.get("/health")[0] == 200, 30, "the rank is not replaced")
        assert ask(server, PROMPTS[0], 0) == first
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_a_host_identity_is_that_of_the_ranks_it_starts(small_model):
    with Server(small_model, "--served-model-name", "small", "--tp", "2", "--threads", "1", "--host-id", "rack-7") as server:
        assert {rank["host"] for rank in server.worker()["ranks"]} == {"rack-7"}
        assert ask(server, PROMPTS[0], 0)[0]
