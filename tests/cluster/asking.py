"""Questions whose answers are compared, log-probabilities included."""

PROMPTS = ["Once upon a time", "The dog", "Lily and Ben went to the park. " * 12]


def ask(server, prompt, seed, tokens=24):
    status, body = server.post("/v1/completions", {
        "model": "small", "prompt": prompt, "max_tokens": tokens, "temperature": 0.8 if seed else 0, "seed": seed,
        "logprobs": 4, "ignore_eos": True})
    assert status == 200, body
    choice = body["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]


def answers(server, prompts=PROMPTS):
    """Cold, sampled, and the last prompt once more from the cache."""
    return [ask(server, prompt, seed) for seed, prompt in enumerate(prompts)] + [ask(server, prompts[-1], 0)]
