"""A prefill and a decode worker on hosts of their own over 1 Gbit/s: one server's bits, and the bytes that the ledger claims
have crossed the network."""
import secrets

import pytest

from asking import answers
from pair import Pair
from server import Server


@pytest.fixture(scope="module")
def token(tmp_path_factory):
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(secrets.token_hex(32))
    file.chmod(0o600)
    return file


def kv_bytes(server):
    return sum(rank["traffic"].get("kv", {"network_bytes": 0})["network_bytes"] for rank in server.worker()["ranks"])


PROMPTS = ["Once upon a time", "Lily and Ben went to the park. " * 12, "one two three four " * 300, "five " * 1500]


def test_a_pair_on_two_hosts_gives_one_servers_answers(network, tiny_model, token):
    with Server(tiny_model, "--served-model-name", "small", "--deterministic", "--threads", 1) as server:
        alone = answers(server, PROMPTS)
    with Pair(tiny_model, token, network=network) as pair:
        before = network.sent(0)
        assert answers(pair.front, PROMPTS) == alone
        claimed = kv_bytes(pair.prefill)
        assert claimed > 1_000_000
        assert network.sent(0) - before >= 0.95 * claimed
        pair.wait_idle()


def test_a_host_that_is_cut_off_holds_nobody(network, tiny_model, token):
    """Whatever the state that the cut finds: nothing is held after 2 s, and answers come again with the network."""
    import threading
    import time
    with Pair(tiny_model, token, network=network, prefill=("--prefill-chunk", 64)) as pair:
        asked = {"model": "small", "prompt": "five " * 1500, "max_tokens": 8, "temperature": 0}
        for seconds in (0.05, 0.2, 0.5):
            leg = threading.Thread(target=lambda: pair.front.post("/v1/completions", {**asked, "cache_salt": str(seconds)}), daemon=True)
            leg.start()
            time.sleep(seconds)
            # The workers lose each other; the front, outside, loses neither.
            network.part(0, 1)
            cut = time.monotonic()
            try:
                pair.wait_idle(10)
                took = time.monotonic() - cut
            finally:
                network.unite(0, 1)
            leg.join(20)
            assert not leg.is_alive()
            print(f"cut after {seconds} s: free after {took:.2f} s")
            assert took < 2.5  # 2 s, and the machine may be busy
        assert pair.front.post("/v1/completions", asked)[0] == 200
