"""What official clients do with a worker they do with a prefill and a decode worker behind the gateway, and get the same."""
import re

import pytest

from gateway import Gateway
from server import Server
from test_gateway_pairs import wait_idle
from test_node_clients import node, test_a_client_for_node  # noqa: F401 - collected here too, with `demo` below
from test_openai_client import *  # noqa: F401,F403


class Front(Gateway):
    """What only workers know is asked of the decode worker."""

    def __init__(self, prefill, decode):
        super().__init__(prefill=[prefill], decode=[decode])
        self.prefill, self.decode = prefill, decode
        self.pages, self.worker_url = decode.pages, decode.url

    def wait_idle(self, seconds=30):
        for worker in (self.prefill, self.decode):
            wait_idle(worker, seconds)


@pytest.fixture(scope="module")
def demo(demo_model, token):
    flags = ("--served-model-name", "demo", "--token-file", token, "--kv-bytes", "512MiB")
    with Server(demo_model, *flags, "--role", "prefill", "--bootstrap-port", 0) as prefill:
        with Server(demo_model, *flags, "--role", "decode") as decode, Front(prefill, decode) as gateway:
            yield gateway
            received, ended = gateway.ended()
            assert received == sum(ended.values()) and ended["failed"] == 0
            handed_over = re.search(r'^shoal_rooms_ended_total\{result="success"\} (\d+)', decode.get("/metrics")[1], re.M)
            assert int(handed_over[1]) > 20, "the answers came from both"
