"""What official clients do with a worker they do through the gateway, and get the same."""
import pytest

from gateway import Gateway
from server import Server
from test_node_clients import node, test_a_client_for_node  # noqa: F401 - collected here too, with `demo` below
from test_openai_client import *  # noqa: F401,F403


class Front(Gateway):
    """A gateway with one worker behind it; what only workers know is asked there."""

    def __init__(self, worker):
        super().__init__(worker)
        self.wait_idle, self.pages, self.worker_url = worker.wait_idle, worker.pages, worker.url


@pytest.fixture(scope="module")
def demo(demo_model):
    with Server(demo_model, "--served-model-name", "demo") as worker, Front(worker) as gateway:
        yield gateway
        received, ended = gateway.ended()
        assert received == sum(ended.values()) and ended["failed"] == 0
