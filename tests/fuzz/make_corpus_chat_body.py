#!/usr/bin/env python3
"""Writes the seeds of fuzz_chat_body into tests/fuzz/corpus/chat_body: request bodies that pass, and some that just fail.

Usage: make_corpus_chat_body.py [FOLDER]. The same files every time.
"""
import json
import os
import sys

HI = [{"role": "user", "content": "hi"}]
SAMPLING = {
    "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "frequency_penalty": -1,
    "presence_penalty": 1, "logit_bias": {"5": -100}, "seed": -9, "stop": ["a", "b"], "stop_token_ids": [1, 2],
    "min_tokens": 3, "ignore_eos": True, "n": 4, "max_tokens": 10,
}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": [1, {\"b\": null}]}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}

SEEDS = {
    "chat": {"messages": HI},
    "sampling": {"messages": HI, **SAMPLING, "logprobs": True, "top_logprobs": 5},
    "stream": {"messages": HI, "stream": True, "stream_options": {"include_usage": True}},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
    "image": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    "tools": {"messages": HI + [{"role": "assistant", "content": None, "tool_calls": [CALL]},
                                {"role": "tool", "tool_call_id": "c", "content": "42"}],
              "tools": [TOOL], "tool_choice": "auto", "chat_template_kwargs": {"enable_thinking": False}},
    "continue": {"messages": HI + [{"role": "assistant", "content": "so"}], "continue_final_message": True},
    "format": {"messages": HI, "response_format": {"type": "json_object"}, "tool_choice": "required"},
    "nulls": {"messages": HI, "temperature": None, "stop": None, "tools": None, "n": None},
    "text": {"prompt": "a", **SAMPLING, "logprobs": 5, "echo": True},
    "strings": {"prompt": ["a", "b"], "best_of": 1, "suffix": None},
    "ids": {"prompt": [1, 2, 3], "max_tokens": 0, "echo": True},
    "lists": {"prompt": [[1], [2, 3]], "stop": "x"},
    "mixed": {"prompt": ["a", 1]},
}
RAW = {
    "empty": b"",
    "deep": b'{"messages":' + b"[" * 63 + b"]" * 63 + b"}",
    "too_deep": b'{"messages":' + b"[" * 80 + b"]" * 80 + b"}",
    "nan": b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}',
    "huge_number": b'{"prompt":"x","temperature":1e999,"seed":123456789012345678901234567890}',
    "broken_utf8": b'{"prompt":"\xff\xc0\xaf"}',
    "surrogates": b'{"prompt":"\\ud83d\\udc1f \\udc1f"}',
    "twice": b'{"prompt":"a","n":1,"prompt":5,"n":0}',
    "events": b"data: one\n\n: c\ndata: two\r\n\r\ndata: [DONE]\n\n",
}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "corpus", "chat_body")
    os.makedirs(folder, exist_ok=True)
    files = {name: json.dumps(body).encode() for name, body in SEEDS.items()} | RAW
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)


main()
