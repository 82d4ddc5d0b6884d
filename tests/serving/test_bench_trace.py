"""`shoal bench serve --trace` against workers without a model."""
import json
import subprocess

import pytest

from server import BINARY, SHARED
from test_gateway_resilience import Fakes

MOONCAKE = [{"timestamp": 3000 * (i // 4), "input_length": 700 + i, "output_length": 5 + i, "hash_ids": [1, 2 if i % 2 else 3]} for i in range(12)]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"2023-11-16 23:59:{57 + i // 4}.{i % 4}000000,{300 + i},{4 + i}\n" for i in range(12))
SERVEGEN = "arrived_at,input_tokens,output_tokens,client\n" + "".join(f"{100 + i / 4:.3f},{300 + i},{4 + i},7\n" for i in range(12))


@pytest.fixture(scope="module")
def fake():
    with Fakes("--decode-ms", 5, "--prefill-tok-s", 1e6) as one:
        yield one


def bench(fake, *flags, code=0):
    run = subprocess.run([BINARY, "bench", "serve", "--url", fake.url, *map(str, flags)], capture_output=True, text=True, timeout=60)
    assert run.returncode == code, run.stderr
    return run.stdout if code == 0 else run.stderr


def report(fake, trace, *flags):
    return json.loads(bench(fake, "--trace", trace, *flags, "--json"))


@pytest.fixture(params=["mooncake", "azure", "servegen"])
def trace(request, tmp_path):
    file = tmp_path / request.param
    file.write_text({"mooncake": "".join(json.dumps(row) + "\n" for row in MOONCAKE), "azure": AZURE, "servegen": SERVEGEN}[request.param])
    return file


def test_lengths_and_times_are_the_traces(fake, trace):
    seen = report(fake, trace, "--speed", 4)
    run, first = seen["runs"][0], 5 if trace.name == "mooncake" else 4
    assert run["answered"] == 12 and run["completion_tokens"] == sum(range(first, first + 12))
    assert run["prompt_tokens"] == sum(range(700, 712)) if trace.name == "mooncake" else sum(range(300, 312))
    assert 12 / 3.0 < seen["ceilings"]["offered_requests_per_s"] < 30, "times are spread, and four times as fast"
    half = report(fake, trace, "--speed", 10, "--length-scale", 0.5, "--requests", 4)["runs"][0]
    assert half["answered"] == 4 and half["completion_tokens"] < run["completion_tokens"] / 4


def test_promised_times_and_classes(fake, trace, tmp_path):
    picture, flags = tmp_path / "load.svg", ("--speed", 10, "--long-input", 306, "--long-output", 8)
    seen = report(fake, trace, *flags, "--slo-ttft", 5000, "--slo-gap", 5000, "--svg", picture)["runs"][0]
    assert seen["kept_share"] == 1 and seen["goodput_requests_per_s"] == seen["requests_per_s"]
    assert sum(one["requests"] for one in seen["classes"].values()) == 12 and len(seen["classes"]) > 1
    assert picture.read_text().startswith("<svg") and all(name in picture.read_text() for name in seen["classes"])
    assert report(fake, trace, *flags, "--slo-ttft", 0.01)["runs"][0]["kept_share"] == 0
    # On a busy machine all tokens of a short answer may be read at once: between them there is no time then.
    assert report(fake, trace, *flags, "--slo-gap", 0.01)["runs"][0]["kept_share"] < 0.5
    assert "kept the promised times" in bench(fake, "--trace", trace, *flags, "--slo-ttft", 5000)


@pytest.mark.parametrize("text, part", [("", "holds no requests"), ("hello\n", "is no trace"), (AZURE + "x,1,2\n", ":14: is no request"),
                                        (SERVEGEN + "1,2\n", ":14: is no request"), ('{"timestamp": 1}\n', ":1: is no request")])
def test_what_is_no_trace(fake, tmp_path, text, part):
    file = tmp_path / "trace"
    file.write_text(text)
    assert part in bench(fake, "--trace", file, code=1)


def test_a_rate_or_a_trace_is_needed(fake):
    assert "--rate R or --trace FILE" in bench(fake, code=2)


@pytest.mark.parametrize("name", ["mooncake_conversation/conversation_trace.jsonl", "azure_conv_2023/AzureLLMInferenceTrace_conv.csv",
                                  "servegen_m_small/sample_1h_8rps.csv"])
def test_the_published_ones_are_read(fake, name):
    file = SHARED / "traces" / name
    if not file.exists():
        pytest.skip(f"no {name}")
    run = report(fake, file, "--requests", 30, "--speed", 50, "--length-scale", 0.02)["runs"][0]
    assert run["answered"] == 30 and run["failed"] == 0
