"""The official OpenAI client against `shoal serve`: what users' tools will do first."""
import math
import threading

import openai
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France, and what is it known for?"}]


@pytest.fixture(scope="module")
def client(demo):
    return openai.OpenAI(base_url=demo.url + "/v1", api_key="unused", max_retries=0, timeout=120)


def chat(client, **options):
    return client.chat.completions.create(**{"model": "demo", "messages": QUESTION, "temperature": 0, "max_tokens": 24, **options})


def collect(stream):
    """The text, finish reason and usage of a one-choice stream."""
    text, finish, usage = "", None, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return text, finish, usage


def test_the_model_answers_sensibly(client):
    answer = chat(client)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")


def test_models_lists_the_served_name(client):
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").id == "demo"


def test_a_stream_gives_the_same_text_and_usage(client):
    whole = chat(client)
    text, finish, usage = collect(chat(client, stream=True, stream_options={"include_usage": True}))
    assert text == whole.choices[0].message.content
    assert finish == whole.choices[0].finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_stream_names_the_role_once_and_has_no_usage_unless_asked(client):
    chunks = list(chat(client, stream=True))
    assert [chunk.choices[0].delta.role for chunk in chunks if chunk.choices and chunk.choices[0].delta.role] == ["assistant"]
    assert all(chunk.usage is None for chunk in chunks)
    assert len({chunk.id for chunk in chunks}) == 1


def test_two_choices_differ_and_are_counted(client):
    answer = chat(client, n=2, temperature=1.5, seed=7, max_tokens=16)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].message.content != answer.choices[1].message.content
    assert answer.usage.completion_tokens > 16 or any(choice.finish_reason == "stop" for choice in answer.choices)


def test_two_choices_stream_side_by_side(client):
    whole = chat(client, n=2, temperature=1, seed=11, max_tokens=12)
    texts = ["", ""]
    for chunk in chat(client, n=2, temperature=1, seed=11, max_tokens=12, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]


def test_a_seed_repeats_the_answer(client):
    options = dict(temperature=1, seed=3, max_tokens=16, top_p=0.9)
    assert chat(client, **options).choices[0].message.content == chat(client, **options).choices[0].message.content


def test_logprobs_are_probabilities_of_the_tokens_sent(client):
    answer = chat(client, logprobs=True, top_logprobs=5, max_tokens=8)
    content = answer.choices[0].logprobs.content
    assert "".join(token.token for token in content) == answer.choices[0].message.content
    for token in content:
        assert len(token.top_logprobs) == 5
        assert token.logprob == pytest.approx(max(top.logprob for top in token.top_logprobs), abs=1e-6)  # greedy
        assert sum(math.exp(top.logprob) for top in token.top_logprobs) <= 1 + 1e-5
        assert bytes(token.bytes).decode("utf-8", "replace") == token.token


def test_a_stop_string_ends_the_text_before_it(client):
    full = chat(client, max_tokens=32).choices[0].message.content
    stop = full[6:11]  # crosses token borders
    answer = chat(client, max_tokens=32, stop=[stop, "never said"])
    assert answer.choices[0].message.content == full[: full.index(stop)]
    assert answer.choices[0].finish_reason == "stop"
    text, finish, _ = collect(chat(client, max_tokens=32, stop=stop, stream=True))
    assert (text, finish) == (full[: full.index(stop)], "stop")


def test_max_tokens_ends_with_length(client):
    answer = chat(client, max_tokens=3)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 3
    assert chat(client, max_tokens=9, max_completion_tokens=2).usage.completion_tokens == 2


def test_a_repeated_prompt_is_reported_as_cached(client):
    messages = [{"role": "user", "content": "Tell me about whales. " * 20}]
    chat(client, messages=messages, max_tokens=2)
    usage = chat(client, messages=messages, max_tokens=2).usage
    assert usage.prompt_tokens_details.cached_tokens >= usage.prompt_tokens - 64


def test_completions_take_text_lists_and_ids(client, demo):
    single = client.completions.create(model="demo", prompt="The sun rises in the", max_tokens=4, temperature=0)
    many = client.completions.create(model="demo", prompt=["The sun rises in the", "One, two, three,"], max_tokens=4, temperature=0)
    assert [choice.index for choice in many.choices] == [0, 1]
    assert many.choices[0].text == single.choices[0].text
    ids = demo.post("/tokenize", {"prompt": "The sun rises in the", "add_special_tokens": False})[1]["tokens"]
    assert client.completions.create(model="demo", prompt=ids, max_tokens=4, temperature=0).choices[0].text == single.choices[0].text


def test_echo_scores_the_prompt(client):
    answer = client.completions.create(model="demo", prompt="The capital of France is", max_tokens=2, temperature=0, echo=True, logprobs=1)
    choice = answer.choices[0]
    assert choice.text.startswith("The capital of France is")
    assert choice.logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in choice.logprobs.token_logprobs[1:])
    assert len(choice.logprobs.tokens) == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.text_offset[0] == 0


@pytest.mark.parametrize("field, value", [
    ("temperature", -1), ("top_p", 0), ("n", 0), ("max_tokens", -5), ("presence_penalty", 3), ("logit_bias", {"a": 1}),
    ("response_format", {"type": "json_object"}), ("tool_choice", "required"), ("messages", []),
])
def test_a_bad_field_is_named(client, field, value):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **{field: value})
    assert field in (caught.value.param or "")
    assert field in caught.value.message


def test_an_image_part_is_refused_by_name(client):
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, messages=[{"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}])
    assert caught.value.param == "messages[0].content[1].type"


def test_text_parts_and_the_developer_role_are_read(client):
    parts = [{"type": "text", "text": "What is the capital "}, {"type": "text", "text": "of France, and what is it known for?"}]
    assert "Paris" in chat(client, messages=[{"role": "user", "content": parts}]).choices[0].message.content
    as_system = chat(client, messages=[{"role": "system", "content": "Be brief."}, *QUESTION])
    as_developer = chat(client, messages=[{"role": "developer", "content": "Be brief."}, *QUESTION])
    assert as_developer.choices[0].message.content == as_system.choices[0].message.content


def test_a_prompt_beyond_the_context_says_so(client):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, messages=[{"role": "user", "content": "word " * 20_000}])
    assert caught.value.code == "context_length_exceeded"


def test_an_unknown_model_is_404(client):
    with pytest.raises(openai.NotFoundError) as caught:
        chat(client, model="someone-else")
    assert "someone-else" in caught.value.message


def test_unknown_fields_are_ignored(client):
    assert "Paris" in chat(client, extra_body={"some_future_field": {"a": [1, 2]}}).choices[0].message.content


def test_leaving_a_stream_ends_the_work(client, demo):
    stream = chat(client, max_tokens=2000, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    demo.wait_idle(10)
    assert demo.pages()["held"] == 0


def test_abort_request_ends_a_stream_by_its_rid(client, demo):
    stream = chat(client, max_tokens=4000, stream=True, extra_body={"ignore_eos": True, "rid": "to-be-aborted"})
    iterator = iter(stream)
    next(iterator)
    assert demo.post("/abort_request", {"rid": "to-be-aborted"}) == (200, {"cancelled": 1})
    finish = None
    for chunk in iterator:
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
    assert finish == "abort"
    demo.wait_idle(10)


def test_many_threads_get_their_own_answers(client):
    prompts = [f"Repeat the number {i}." for i in range(12)]
    alone = [chat(client, messages=[{"role": "user", "content": prompt}], max_tokens=8).usage.prompt_tokens for prompt in prompts]
    together = [None] * len(prompts)

    def ask(i):
        together[i] = chat(client, messages=[{"role": "user", "content": prompts[i]}], max_tokens=8).usage.prompt_tokens

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert together == alone


def test_stop_ids_min_tokens_and_ignore_eos(client):
    answer = chat(client, max_tokens=40, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 40 and answer.choices[0].finish_reason == "length"
    longer = chat(client, max_tokens=60, extra_body={"min_tokens": 50})
    assert longer.usage.completion_tokens >= 50


def test_logit_bias_bans_and_forces(client, demo):
    ids = demo.post("/tokenize", {"prompt": "Paris", "add_special_tokens": False})[1]["tokens"]
    forced = chat(client, max_tokens=3, logit_bias={str(ids[0]): 100})
    assert forced.usage.completion_tokens == 3
    text = demo.post("/detokenize", {"tokens": [ids[0]] * 3})[1]["text"]
    assert forced.choices[0].message.content == text


def test_the_render_and_token_endpoints_agree(demo):
    status, tokens = demo.post("/tokenize", {"messages": QUESTION})
    assert status == 200 and tokens["count"] == len(tokens["tokens"])
    text = demo.post("/detokenize", {"tokens": tokens["tokens"]})[1]["text"]
    assert QUESTION[0]["content"] in text
    # The rendered text as a prompt of its own is the same ids, and as many as the chat endpoint counts.
    again = demo.post("/tokenize", {"prompt": text, "add_special_tokens": False})[1]
    assert again["tokens"] == tokens["tokens"]
    answer = demo.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 1})[1]
    assert answer["usage"]["prompt_tokens"] == tokens["count"]
