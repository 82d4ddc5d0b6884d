"""Faults at known moments, with the program of the preset `faults`: what is noticed, what is harmless, what comes after."""
import json
import os
import subprocess
from pathlib import Path

import pytest

import server as server_module
from asking import answers
from server import BINARY, Server

FAULTS_BINARY = Path(os.environ.get("SHOAL_FAULTS_BINARY", BINARY.parent.parent / "faults/shoal"))


@pytest.fixture(autouse=True)
def faults_binary(monkeypatch):
    if not FAULTS_BINARY.exists():
        pytest.skip(f"{FAULTS_BINARY} is not built (scripts/build faults shoal)")
    monkeypatch.setattr(server_module, "BINARY", FAULTS_BINARY)


ONCE = {"model": "small", "prompt": "Once", "max_tokens": 40, "ignore_eos": True, "temperature": 0.7, "seed": 3, "logprobs": 1}


@pytest.fixture(scope="module")
def alone(small_model):
    """What one rank answers to everything, and to ONCE."""
    with Server(small_model, "--served-model-name", "small", "--deterministic", "--threads", 1) as server:
        return answers(server), server.post("/v1/completions", ONCE)[1]


@pytest.fixture(scope="module")
def one_rank(alone):
    return alone[0]


def serve(model, folder, faults, *flags):
    plan = folder / "faults.json"
    plan.write_text(json.dumps(faults))
    return Server(model, "--served-model-name", "small", "--deterministic", "--threads", 1, "--fault-plan", plan, *flags)


def until_healthy(server):
    import time
    deadline = time.monotonic() + 30
    while server.get("/health")[0] != 200:
        assert time.monotonic() < deadline, server.output()
        time.sleep(0.05)


@pytest.mark.parametrize("layout", [("--tp", 2), ("--pp", 2)], ids=["tp2", "pp2"])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("at, nth, action", [("plan", 4, "kill"), ("plan", 7, "stop"), ("transfer", 9, "kill"),
                                             ("transfer", 9, "cut"), ("transfer", 6, "truncate")])
def test_the_epoch_ends_and_the_next_answers_right(small_model, tmp_path, alone, layout, rank, at, nth, action):
    if rank == 0 and action in ("kill", "stop"):
        pytest.skip("the server itself: tests/cluster/test_failures.py")
    with serve(small_model, tmp_path, [{"at": at, "nth": nth, "rank": rank, "action": action}], *layout) as server:
        # A gateway's request ends, and so may others; whoever has nowhere else to go waits for the next epoch.
        if nth % 2:
            status, body = server.post("/v1/completions", ONCE, headers={"X-Shoal-Inner": "1"})
            assert status == 503, (status, body)
            until_healthy(server)
        else:
            status, body = server.post("/v1/completions", ONCE)
            assert status == 200, (status, body)
            assert body["choices"] == alone[1]["choices"] and body["usage"] == alone[1]["usage"]
        assert server.worker()["epoch"] == 2, server.output()
        assert answers(server) == alone[0]
        server.wait_idle()
        pages = server.pages()
        assert pages["free"] + pages["cached"] == pages["capacity"]
        assert server.stop() == 0


def test_a_delay_is_only_slow(small_model, tmp_path, one_rank):
    with serve(small_model, tmp_path, [{"at": "transfer", "nth": 5, "rank": 1, "action": "delay", "delay_ms": 1500},
                                       {"at": "plan", "nth": 3, "rank": 0, "action": "delay", "delay_ms": 1500}], "--tp", 2) as server:
        assert answers(server) == one_rank
        assert server.worker()["epoch"] == 1


@pytest.mark.parametrize("at", ["join", "loaded", "start", "ready"])
def test_a_rank_that_dies_while_starting_ends_the_start(small_model, tmp_path, at):
    with pytest.raises(RuntimeError, match="shoal serve: rank 1 "):
        serve(small_model, tmp_path, [{"at": at, "rank": 1, "action": "kill"}], "--tp", 2)


@pytest.mark.parametrize("text, sentence", [
    ("{}", "is no JSON list of faults"),
    ('[{"at": "plan", "rank": 1, "action": "explode"}]', "fault 1: 'action' must be kill"),
    ('[{"at": "plan", "rank": 1, "action": "drop"}]', "fault 1: 'drop' can be done to a transfer only"),
    ('[{"at": "plan", "rank": 1, "action": "kill", "nht": 2}]', "'nht' is unknown"),
    ('[{"at": "plan", "rank": 1, "action": "delay"}]', "fault 1: 'delay' needs 'delay_ms'"),
    ('[{"at": "plan", "rank": 1, "action": "kill", "delay_ms": 5}]', "fault 1: 'delay_ms' is for the action 'delay' alone"),
    ('[{"at": "plan", "rank": 2, "action": "kill"}]', "fault 1: there is no rank 2: the layout has 2"),
    ('[{"at": "join", "rank": 0, "action": "kill"}]', "fault 1: rank 0 never comes to 'join'"),
    (None, "faults.json cannot be read: No such file or directory"),
])
def test_mistakes_in_a_plan_are_one_sentence(small_model, tmp_path, text, sentence):
    plan = tmp_path / "faults.json"
    if text is not None:
        plan.write_text(text)
    done = subprocess.run([FAULTS_BINARY, "serve", small_model, "--port", "0", "--tp", "2", "--log-level", "error", "--fault-plan", plan],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and sentence in done.stderr


def test_other_builds_take_no_plan(small_model):
    done = subprocess.run([BINARY, "serve", small_model, "--fault-plan", "x"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
