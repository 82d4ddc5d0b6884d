"""./quickstart as a person runs it: in a terminal, ended with Ctrl-C."""
import fcntl
import os
import pty
import select
import socket
import subprocess
import termios
import time

import pytest

from ports import free_ports
from server import BINARY, ROOT


def is_open(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(BINARY != ROOT / "build/release/shoal", reason="quickstart builds and runs build/release/shoal")
def test_ctrl_c_ends_quickstart_and_its_server(small_folder):
    port = free_ports(3)  # the gateway's and two servers'
    master, slave = pty.openpty()
    process = subprocess.Popen([ROOT / "quickstart", "--model", small_folder, "--port", str(port)], stdin=slave, stdout=slave, stderr=slave,
                               start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    seen, deadline = "", time.monotonic() + 600
    try:
        while "Ctrl-C stops the cluster" not in seen:
            ended = process.poll() is not None
            if select.select([master], [], [], 0 if ended else 0.5)[0]:
                seen += os.read(master, 65536).decode("utf-8", "replace")
            else:
                assert not ended and time.monotonic() < deadline, seen
        assert is_open(port)
        os.write(master, b"\x03")
        assert process.wait(60) == 130
        assert not is_open(port), "the server is gone too"
    finally:
        if process.poll() is None:
            process.terminate()  # its own trap stops the server
            process.wait(60)
        os.close(master)
        os.close(slave)
