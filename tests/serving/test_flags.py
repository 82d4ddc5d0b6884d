"""Flags that are refused are usage errors, with a sentence that names them, whatever becomes of standard error."""
import subprocess

import pytest

from server import BINARY

SERVE = ["serve", "no-such-model.gguf"]
BENCH = ["bench", "serve", "--url", "http://127.0.0.1:1", "--rate", "1"]
CHAT = ["chat", "http://127.0.0.1:1"]


@pytest.mark.parametrize("command, flag", [(SERVE, "--drain-seconds"), (SERVE, "--max-token-gap"), (BENCH[:-2], "--rate"),
                                           (BENCH, "--duration"), (BENCH, "--deadline"), (CHAT, "--timeout")])
@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "1e999", "x", ""])
def test_a_flag_that_is_no_number_is_a_usage_error(command, flag, value):
    run = subprocess.run([BINARY, *command, f"{flag}={value}"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert run.returncode == 2 and flag in run.stderr, run.stderr


@pytest.mark.parametrize("command, named", [
    ([*SERVE, "--tp", "2", "--listen-ranks", "127.0.0.1:7000", "--token-file", ""], "--token-file"),
    ([*SERVE, "--tp", "2", "--listen-ranks", "", "--token-file", "t"], "--listen-ranks"),
    ([*SERVE, "--tp", "2", "--listen-ranks", "127.0.0.1", "--token-file", "t"], "--listen-ranks"),
    ([*SERVE, "--tp", "2", "--host-id", "a b"], "--host-id"),
    ([*SERVE, "--tp", "2", "--host-id", "a\nb"], "--host-id"),
    (["rank", "--join", "127.0.0.1:1", "--token-file", ""], "--token-file"),
    (["rank", "--join", "127.0.0.1:1"], "--token-file"),
    (["rank", "--join", "127.0.0.1:1", "--token-file", "t", "--packed-cache", ""], "--packed-cache"),
    (["bench", "engine", "m.gguf", "--layers", "7,9"], "--layers"),
    (["bench", "engine", "m.gguf", "--tp-split", "3,1"], "--tp-split"),
    (["bench", "engine", "m.gguf", "--chunk", "5"], "--chunk"),
])
def test_a_flag_that_would_go_nowhere_is_a_usage_error(command, named):
    run = subprocess.run([BINARY, *command], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert run.returncode == 2 and named in run.stderr, run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("command, code", [(["inspect", "no-such-model"], 1), (SERVE, 1), (["up", "no-such-file.toml"], 1),
                                           (["chat", "http://127.0.0.1:1"], 1), (["serve"], 2), (["nonsense"], 2), ([], 2)])
def test_a_full_standard_error_changes_no_exit_code(command, code):
    with open("/dev/full", "w") as full:
        run = subprocess.run([BINARY, *command], stdout=subprocess.DEVNULL, stderr=full, timeout=60, stdin=subprocess.DEVNULL)
    assert run.returncode == code


def test_options_of_a_run_that_is_too_long_are_refused(small_model):
    run = subprocess.run([BINARY, "bench", "engine", small_model, "--served", "--prompt", "4", "--generate", "20000", "--repeat", "1"],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and "--generate" in run.stderr, run.stderr
