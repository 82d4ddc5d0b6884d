"""`shoal bench traffic`: what the ranks' ledgers have counted is what the formulas say, to the byte, for every purpose and rank."""
import json
import subprocess

import pytest
from server import BINARY, SMALL_MODEL

MOVED = {"tp", "pp", "sample", "plan"}  # without context parallelism
PURPOSES = MOVED | {"cp_ring", "cp_merge"}


def traffic(*flags, sizes=("--prompt", "70", "--chunk", "32", "--generate", "5")):
    run = subprocess.run([BINARY, "bench", "traffic", SMALL_MODEL, *sizes, "--threads", "1", "--json", *flags],
                         capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.skipif(not SMALL_MODEL.exists(), reason="the small model is not here")
@pytest.mark.parametrize("flags, moved", [
    (["--tp", "2"], {"tp", "sample", "plan"}),
    (["--tp", "2", "--tp-split", "3,1", "--batch", "3"], {"tp", "sample", "plan"}),
    (["--pp", "2", "--batch", "2"], MOVED - {"tp"}),
    (["--pp", "3", "--layers", "1,3,1"], MOVED - {"tp"}),
    (["--tp", "2", "--pp", "2", "--batch", "2"], MOVED),
], ids=lambda value: "".join(value) if isinstance(value, list) else "")
def test_ledgers_count_what_the_formulas_say(flags, moved):
    report = traffic(*flags)
    assert [run["phase"] for run in report["runs"]] == ["prefill", "decode"]
    for run in report["runs"]:
        for rank, purposes in enumerate(run["ranks"]):
            assert purposes.keys() == PURPOSES
            for purpose, both in purposes.items():
                for what in ("calls", "payload_bytes", "wire_bytes"):
                    assert both["counted"][what] == both["predicted"][what], (run["phase"], rank, purpose, what)
        assert {purpose for purpose, both in run["purposes"].items() if both["counted"]["payload_bytes"] > 0} == moved


@pytest.mark.skipif(not SMALL_MODEL.exists(), reason="the small model is not here")
def test_one_rank_moves_nothing():
    for run in traffic()["runs"]:
        assert all(both["counted"]["calls"] == 0 for both in run["purposes"].values())


@pytest.mark.skipif(not SMALL_MODEL.exists(), reason="the small model is not here")
def test_the_prompt_that_nobody_asked_for_fits_the_model():
    """512 tokens of context, of which 16 are generated."""
    report = traffic(sizes=())
    assert report["params"]["prompt"] == 496 and report["params"]["generate"] == 16
