// The official OpenAI client for Node against `shoal serve`: the cases of test_openai_client.py.
import assert from "node:assert/strict";
import test from "node:test";

import { QUESTION, idle, load, post, url } from "./served.mjs";

const { default: OpenAI } = await load("openai");
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0, timeout: 120_000 });

const chat = (options = {}) => client.chat.completions.create({ model: "demo", messages: QUESTION, temperature: 0, max_tokens: 24, ...options });
const complete = (options) => client.completions.create({ model: "demo", max_tokens: 4, temperature: 0, ...options });
const textOf = (answer) => answer.choices[0].message.content;

// The text, finish reason and usage of a one-choice stream.
async function collect(stream) {
  let text = "", finish = null, usage = null;
  for await (const chunk of stream) {
    usage = chunk.usage ?? usage;
    for (const choice of chunk.choices) {
      text += choice.delta.content ?? "";
      finish = choice.finish_reason ?? finish;
    }
  }
  return { text, finish, usage };
}

test("the model answers sensibly", async () => {
  const answer = await chat();
  assert.match(textOf(answer), /Paris/);
  assert.equal(answer.choices[0].message.role, "assistant");
  assert.equal(answer.object, "chat.completion");
  assert.ok(answer.id.startsWith("chatcmpl-"));
});

test("models lists the served name", async () => {
  const names = [];
  for await (const model of client.models.list()) names.push(model.id);
  assert.deepEqual(names, ["demo"]);
  assert.equal((await client.models.retrieve("demo")).id, "demo");
});

test("a stream gives the same text and usage", async () => {
  const whole = await chat();
  const { text, finish, usage } = await collect(await chat({ stream: true, stream_options: { include_usage: true } }));
  assert.equal(text, textOf(whole));
  assert.equal(finish, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  assert.equal(usage.prompt_tokens, whole.usage.prompt_tokens);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
});

test("the stream helper puts the same answer together", async () => {
  const whole = await chat();
  const runner = client.chat.completions.stream({ model: "demo", messages: QUESTION, temperature: 0, max_tokens: 24 });
  const final = await runner.finalChatCompletion();
  assert.equal(textOf(final), textOf(whole));
  assert.equal(final.choices[0].finish_reason, whole.choices[0].finish_reason);
});

test("a stream names the role once and has no usage unless asked", async () => {
  const chunks = [];
  for await (const chunk of await chat({ stream: true })) chunks.push(chunk);
  assert.deepEqual(chunks.flatMap((chunk) => chunk.choices).map((choice) => choice.delta.role).filter(Boolean), ["assistant"]);
  assert.ok(chunks.every((chunk) => !chunk.usage));
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
});

test("two choices differ and stream side by side", async () => {
  const options = { n: 2, temperature: 1.5, seed: 7, max_tokens: 16 };
  const whole = await chat(options);
  assert.deepEqual(whole.choices.map((choice) => choice.index), [0, 1]);
  const wanted = whole.choices.map((choice) => choice.message.content);
  assert.notEqual(wanted[0], wanted[1]);
  const texts = ["", ""];
  for await (const chunk of await chat({ ...options, stream: true })) {
    for (const choice of chunk.choices) texts[choice.index] += choice.delta.content ?? "";
  }
  assert.deepEqual(texts, wanted);
});

test("a seed repeats the answer", async () => {
  const options = { temperature: 1, seed: 3, max_tokens: 16, top_p: 0.9 };
  assert.equal(textOf(await chat(options)), textOf(await chat(options)));
});

test("logprobs are probabilities of the tokens sent", async () => {
  const answer = await chat({ logprobs: true, top_logprobs: 5, max_tokens: 8 });
  const content = answer.choices[0].logprobs.content;
  assert.equal(content.map((token) => token.token).join(""), textOf(answer));
  for (const token of content) {
    assert.equal(token.top_logprobs.length, 5);
    assert.ok(Math.abs(token.logprob - Math.max(...token.top_logprobs.map((top) => top.logprob))) < 1e-6, "greedy");
    assert.ok(token.top_logprobs.reduce((sum, top) => sum + Math.exp(top.logprob), 0) <= 1 + 1e-5);
    assert.equal(Buffer.from(token.bytes).toString("utf8"), token.token);
  }
});

test("a stop string ends the text before it", async () => {
  const full = textOf(await chat({ max_tokens: 32 }));
  const stop = full.slice(6, 11); // crosses token borders
  const answer = await chat({ max_tokens: 32, stop: [stop, "never said"] });
  assert.equal(textOf(answer), full.slice(0, full.indexOf(stop)));
  assert.equal(answer.choices[0].finish_reason, "stop");
  const streamed = await collect(await chat({ max_tokens: 32, stop, stream: true }));
  assert.deepEqual([streamed.text, streamed.finish], [full.slice(0, full.indexOf(stop)), "stop"]);
});

test("max_tokens ends with length", async () => {
  const answer = await chat({ max_tokens: 3 });
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.equal(answer.usage.completion_tokens, 3);
  assert.equal((await chat({ max_tokens: 9, max_completion_tokens: 2 })).usage.completion_tokens, 2);
});

test("a repeated prompt is reported as cached", async () => {
  const messages = [{ role: "user", content: "Tell me about herrings. ".repeat(20) }];
  await chat({ messages, max_tokens: 2 });
  const { usage } = await chat({ messages, max_tokens: 2 });
  assert.ok(usage.prompt_tokens_details.cached_tokens >= usage.prompt_tokens - 64);
});

test("completions take text, lists and ids", async () => {
  const prompt = "The sun rises in the";
  const single = await complete({ prompt });
  const many = await complete({ prompt: [prompt, "One, two, three,"] });
  assert.deepEqual(many.choices.map((choice) => choice.index), [0, 1]);
  assert.equal(many.choices[0].text, single.choices[0].text);
  const { tokens } = await post("/tokenize", { prompt, add_special_tokens: false });
  assert.equal((await complete({ prompt: tokens })).choices[0].text, single.choices[0].text);
  let streamed = "";
  for await (const chunk of await complete({ prompt, stream: true })) streamed += chunk.choices[0]?.text ?? "";
  assert.equal(streamed, single.choices[0].text);
});

test("echo scores the prompt", async () => {
  const answer = await complete({ prompt: "The capital of France is", max_tokens: 2, echo: true, logprobs: 1 });
  const [choice] = answer.choices;
  assert.ok(choice.text.startsWith("The capital of France is"));
  assert.equal(choice.logprobs.token_logprobs[0], null);
  assert.ok(choice.logprobs.token_logprobs.slice(1).every((value) => value <= 0));
  assert.equal(choice.logprobs.tokens.length, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  assert.equal(choice.logprobs.tokens.join(""), choice.text);
  assert.equal(choice.logprobs.text_offset[0], 0);
});

for (const [field, value] of Object.entries({
  temperature: -1, top_p: 0, n: 0, max_tokens: -5, presence_penalty: 3, logit_bias: { a: 1 },
  response_format: { type: "json_object" }, tool_choice: "required", messages: [],
})) {
  test(`a bad ${field} is named`, async () => {
    await assert.rejects(chat({ [field]: value }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.ok(error.param.includes(field) && error.message.includes(field));
      return true;
    });
  });
}

test("an image part is refused by name", async () => {
  const content = [{ type: "text", text: "What is this?" }, { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } }];
  await assert.rejects(chat({ messages: [{ role: "user", content }] }), (error) => error.param === "messages[0].content[1].type");
});

test("text parts and the developer role are read", async () => {
  const content = [{ type: "text", text: "What is the capital " }, { type: "text", text: "of France, and what is it known for?" }];
  assert.match(textOf(await chat({ messages: [{ role: "user", content }] })), /Paris/);
  const brief = (role) => chat({ messages: [{ role, content: "Be brief." }, ...QUESTION] });
  assert.equal(textOf(await brief("developer")), textOf(await brief("system")));
});

test("a prompt beyond the context says so", async () => {
  await assert.rejects(chat({ messages: [{ role: "user", content: "word ".repeat(20_000) }] }), (error) => error.code === "context_length_exceeded");
});

test("an unknown model is 404", async () => {
  await assert.rejects(chat({ model: "someone-else" }), (error) => error instanceof OpenAI.NotFoundError && error.message.includes("someone-else"));
});

test("unknown fields are ignored", async () => {
  assert.match(textOf(await chat({ some_future_field: { a: [1, 2] } })), /Paris/);
});

test("leaving a stream ends the work", async () => {
  const stream = await chat({ max_tokens: 2000, stream: true, ignore_eos: true });
  for await (const _ of stream) break;
  await idle();
  const aborted = await chat({ max_tokens: 2000, stream: true, ignore_eos: true });
  aborted.controller.abort();
  await idle();
});

test("abort_request ends a stream by its rid", async () => {
  const stream = await chat({ max_tokens: 4000, stream: true, ignore_eos: true, rid: "node-aborts-this" });
  let finish = null, asked = false;
  for await (const chunk of stream) {
    if (!asked) assert.deepEqual(await post("/abort_request", { rid: "node-aborts-this" }), { cancelled: 1 });
    asked = true;
    finish = chunk.choices[0]?.finish_reason ?? finish;
  }
  assert.equal(finish, "abort");
  await idle();
});

test("many at once get their own answers", async () => {
  const ask = async (i) => (await chat({ messages: [{ role: "user", content: `Repeat the number ${i}.` }], max_tokens: 8 })).usage.prompt_tokens;
  const numbers = [...Array(12).keys()].map((i) => 10 ** (i % 6));
  const alone = [];
  for (const number of numbers) alone.push(await ask(number));
  assert.deepEqual(await Promise.all(numbers.map(ask)), alone);
});

test("stop ids, min_tokens and ignore_eos", async () => {
  const answer = await chat({ max_tokens: 40, ignore_eos: true });
  assert.equal(answer.usage.completion_tokens, 40);
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.ok((await chat({ max_tokens: 60, min_tokens: 50 })).usage.completion_tokens >= 50);
});

test("logit_bias bans and forces", async () => {
  const { tokens } = await post("/tokenize", { prompt: "Paris", add_special_tokens: false });
  const forced = await chat({ max_tokens: 3, logit_bias: { [tokens[0]]: 100 } });
  assert.equal(forced.usage.completion_tokens, 3);
  assert.equal(textOf(forced), (await post("/detokenize", { tokens: [tokens[0], tokens[0], tokens[0]] })).text);
});
