#!/usr/bin/env python3
"""Asks one question of an OpenAI-compatible server, prints the answer as it arrives, then how fast it came.

Exit code: 0 when a non-empty answer arrived, 1 otherwise. Needs nothing beyond Python's standard library.
"""
import argparse
import json
import sys
import time
import urllib.error
import urllib.request


def events(response):
    """The JSON payloads of a stream of server-sent events, until [DONE]."""
    for line in response:
        if line.startswith(b"data: "):
            payload = line[6:].strip()
            if payload == b"[DONE]":
                return
            yield json.loads(payload)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="where the server listens (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--timeout", type=float, default=120, help="seconds to wait for any part of the answer")
    args = parser.parse_args()

    body = {
        "messages": [{"role": "user", "content": args.question}],
        "max_tokens": args.max_tokens,
        # Small models repeat themselves when they always take the likeliest token.
        "temperature": 0.2,
        "top_p": 0.9,
        "frequency_penalty": 0.3,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(
        args.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    print(f"> {args.question}\n")
    answer, usage, first, begin = "", None, None, time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=args.timeout) as response:
            for event in events(response):
                if "error" in event:
                    sys.exit(f"\nThe server reported: {event['error']['message']}")
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    text = choice["delta"].get("content") or ""
                    if text:
                        first = first or time.monotonic()
                        answer += text
                        print(text, end="", flush=True)
    except urllib.error.HTTPError as error:
        sys.exit(f"The server answered {error.code}: {error.read().decode(errors='replace')}")
    except OSError as error:
        sys.exit(f"No answer from {args.url}: {error}")
    end = time.monotonic()
    if not answer.strip() or usage is None:
        sys.exit("\nThe answer was empty.")
    tokens = usage["completion_tokens"]
    speed = f"{(tokens - 1) / (end - first):.0f} tokens per second" if tokens > 1 and end > first else "one token"
    print(f"\n\n  time to first token {1000 * (first - begin):.0f} ms, then {speed} ({tokens} tokens)")


if __name__ == "__main__":
    main()
