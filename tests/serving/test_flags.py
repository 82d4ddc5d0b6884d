"""Flags that take a real number take no other text, NaN and infinities included."""
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
