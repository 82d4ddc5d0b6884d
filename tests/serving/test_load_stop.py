"""A load that is ended in its middle, by whatever signal, leaves nothing behind."""
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

from server import BINARY


@pytest.fixture(scope="module")
def large_model(tmp_path_factory):
    """270 MB in three-digit percents of progress: a signal finds it loading."""
    folder = tmp_path_factory.mktemp("large") / "model"
    subprocess.run([BINARY, "synth", "smollm2-135m", folder, "--type", "bf16"], check=True, stdout=subprocess.DEVNULL)
    return folder


def shared_memory():
    return set(os.listdir("/dev/shm"))


def files_below(folder):
    return {os.path.join(where, name): os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(folder) for name in names}


def wait_for_progress(terminal, process):
    """Reads the terminal until the progress line says that a part has been loaded."""
    text, deadline = "", time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if select.select([terminal], [], [], 0.1)[0]:
            text += os.read(terminal, 4096).decode(errors="replace")
        if found := re.search(r"oading\s+(\d+) %", text):
            return int(found[1])
    raise AssertionError(f"no progress was shown: {text!r}")


@pytest.mark.parametrize("command", [["score", "--jsonl"], ["serve", "--port", "0"]])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_loading_leaves_nothing(large_model, tmp_path, command, number):
    before, shared = files_below(large_model), shared_memory()
    terminal, other_end = pty.openpty()
    process = subprocess.Popen([BINARY, command[0], large_model, *command[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=other_end, cwd=tmp_path, env=dict(os.environ, TMPDIR=str(tmp_path), SHOAL_LOG="error"))
    os.close(other_end)
    try:
        percent = wait_for_progress(terminal, process)
        process.send_signal(number)
        assert process.wait(10) != 0 or command[0] == "serve"
        assert percent < 100
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert not list(tmp_path.iterdir())
    assert files_below(large_model) == before
    assert shared_memory() <= shared
