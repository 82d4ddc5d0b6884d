"""What the gateway predicts of a request before any tokenizer has seen it, beside what the worker then counts."""
import json
import re
import statistics

import pytest

from gateway import Gateway
from server import SHARED
from test_gateway import streamed


def questions():
    """Prompts of all the folders' JSON lines in turn, so that kinds mix."""
    lists = []
    for file in sorted((SHARED / "prompts").glob("*/*.jsonl")):
        rows = [json.loads(line) for line in file.read_text().split("\n")[:200] if line]
        texts = [row.get("question") or row.get("prompt") or (row.get("turns") or [None])[0] for row in rows]
        texts = [text.get("content") if isinstance(text, dict) else text for text in texts]
        lists.append([text for text in texts if isinstance(text, str) and len(text) < 3000])
    lists = [texts for texts in lists if len(texts) >= 40]
    return [text for group in zip(*lists) for text in group] if lists else []


def test_input_tokens_are_nearly_known_after_a_hundred_requests(demo):
    prompts = questions()[:160]
    if len(prompts) < 160:
        pytest.skip("no prompts to ask")
    errors = []
    with Gateway(demo.url) as gateway:
        for number, prompt in enumerate(prompts):
            body = {"model": "demo", "messages": [{"role": "user", "content": prompt}], "max_tokens": 1}
            head, events = streamed(gateway, body, {"X-Shoal-Route": "1"}, "/v1/chat/completions")
            said = float(re.search(r"input=(\d+)", head)[1])
            counted = json.loads(events[-2])["usage"]["prompt_tokens"]
            if number >= 100:
                errors.append(abs(said - counted) / counted)
    median = statistics.median(errors)
    print(f"input tokens after 100 requests: median error {100 * median:.1f} %, worst {100 * max(errors):.1f} %")
    assert median <= 0.10
