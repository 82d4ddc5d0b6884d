"""Offsets of an echoed prompt's tokens point into the text, whatever the vocabulary puts before it."""
import json


def test_offsets_point_at_the_tokens_text(small):
    prompt = "Once upon a time there was a fox."
    for streams in (False, True):
        body = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "echo": True, "logprobs": 0, "stream": streams}
        status, answer = small.post("/v1/completions", body)
        assert status == 200
        if streams:
            events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
            choices = [event["choices"][0] for event in events if event["choices"]]
            text = "".join(choice["text"] for choice in choices)
            scored = [choice["logprobs"] for choice in choices if choice["logprobs"]]
            tokens = [token for piece in scored for token in piece["tokens"]]
            offsets = [offset for piece in scored for offset in piece["text_offset"]]
        else:
            text, logprobs = answer["choices"][0]["text"], answer["choices"][0]["logprobs"]
            tokens, offsets = logprobs["tokens"], logprobs["text_offset"]
        assert text.startswith(prompt) and offsets[0] == 0 and offsets == sorted(offsets)
        shown = [(token, offset) for token, offset in zip(tokens, offsets) if token != "<s>" and offset < len(prompt)]
        first, rest = shown[0], shown[1:]
        assert text.startswith(first[0].lstrip(" ")) and first[1] == 0
        for token, offset in rest:
            assert text[offset:].startswith(token), (token, offset, text)
