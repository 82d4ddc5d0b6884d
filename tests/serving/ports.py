"""Ports for servers that must be told theirs, because something else has to know it before they start."""
import os
import random
import socket

# Below the range that Linux gives connections their own end's port from (ip_local_port_range, 32768 up): a port found
# free there may be some connection's a moment later, and the server then finds it in use.
LOWEST, HIGHEST = 20000, 32000
_draw = random.Random(os.getpid())


def free_ports(count):
    """`count` ports in a row; the first of them."""
    while True:
        first = _draw.randrange(LOWEST, HIGHEST - count)
        try:
            for port in range(first, first + count):
                with socket.create_server(("127.0.0.1", port)):
                    pass
            return first
        except OSError:
            pass


def free_port():
    return free_ports(1)
