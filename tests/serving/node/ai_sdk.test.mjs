// The AI SDK (packages ai and @ai-sdk/openai-compatible), which shares no code with OpenAI's client and checks every
// answer and chunk against schemas of its own. What it cannot say is left out: n, logprobs, echo, logit_bias, ids.
import assert from "node:assert/strict";
import test from "node:test";

import { QUESTION, idle, load, url } from "./served.mjs";

const { APICallError, generateText, streamText } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const provider = createOpenAICompatible({ name: "shoal", baseURL: `${url}/v1`, apiKey: "unused", includeUsage: true });

const options = (more = {}) => ({ model: provider("demo"), messages: QUESTION, temperature: 0, maxOutputTokens: 24, maxRetries: 0, ...more });
const ask = (more) => generateText(options(more));
// Fields of a request that the SDK has no name for.
const fields = (shoal) => ({ providerOptions: { shoal } });

async function streamed(more) {
  const failures = [];
  const result = streamText(options({ onError: ({ error }) => failures.push(error), ...more }));
  let text = "";
  for await (const piece of result.textStream) text += piece;
  assert.deepEqual(failures, []);
  return { text, finish: await result.finishReason, usage: await result.usage };
}

test("the model answers sensibly", async () => {
  const answer = await ask();
  assert.match(answer.text, /Paris/);
  assert.equal(answer.response.modelId, "demo");
  assert.ok(answer.response.id.startsWith("chatcmpl-"));
});

test("a stream gives the same text, finish reason and usage", async () => {
  const whole = await ask();
  const { text, finish, usage } = await streamed();
  assert.equal(text, whole.text);
  assert.equal(finish, whole.finishReason);
  assert.equal(usage.outputTokens, whole.usage.outputTokens);
  assert.equal(usage.inputTokens, whole.usage.inputTokens);
  assert.equal(usage.totalTokens, usage.inputTokens + usage.outputTokens);
});

test("a seed repeats the answer", async () => {
  const drawn = { temperature: 1, seed: 3, maxOutputTokens: 16, topP: 0.9 };
  assert.equal((await ask(drawn)).text, (await ask(drawn)).text);
});

test("a stop string ends the text before it", async () => {
  const full = (await ask({ maxOutputTokens: 32 })).text;
  const stop = full.slice(6, 11);
  const answer = await ask({ maxOutputTokens: 32, stopSequences: [stop, "never said"] });
  assert.deepEqual([answer.text, answer.finishReason], [full.slice(0, full.indexOf(stop)), "stop"]);
  const piecewise = await streamed({ maxOutputTokens: 32, stopSequences: [stop] });
  assert.deepEqual([piecewise.text, piecewise.finish], [answer.text, "stop"]);
});

test("maxOutputTokens ends with length", async () => {
  const answer = await ask({ maxOutputTokens: 3 });
  assert.equal(answer.finishReason, "length");
  assert.equal(answer.usage.outputTokens, 3);
});

test("a repeated prompt is reported as cached", async () => {
  const messages = [{ role: "user", content: "Tell me about seals. ".repeat(20) }];
  await ask({ messages, maxOutputTokens: 2 });
  const { usage } = await ask({ messages, maxOutputTokens: 2 });
  assert.ok((usage.cachedInputTokens ?? usage.inputTokenDetails.cacheReadTokens) >= usage.inputTokens - 64);
});

test("a system prompt and earlier turns reach the model", async () => {
  const alone = await ask();
  const briefed = await ask({ system: "Be brief." });
  assert.ok(briefed.usage.inputTokens > 0 && briefed.text.length > 0);
  const longer = await ask({ messages: [...QUESTION, { role: "assistant", content: alone.text }, { role: "user", content: "And of Italy?" }] });
  assert.ok(longer.usage.inputTokens > alone.usage.inputTokens);
});

test("text completions", async () => {
  const answer = await generateText({ model: provider.completionModel("demo"), prompt: "The sun rises in the", maxOutputTokens: 4, temperature: 0, maxRetries: 0 });
  assert.ok(answer.text.length > 0);
  assert.equal(answer.usage.outputTokens, 4);
});

for (const [name, more] of Object.entries({
  temperature: { temperature: -1 }, top_p: { topP: 7 }, max_tokens: fields({ max_tokens: -5 }), presence_penalty: { presencePenalty: 3 },
  response_format: fields({ response_format: { type: "json_object" } }), n: fields({ n: 0 }),
})) {
  test(`a bad ${name} is named`, async () => {
    await assert.rejects(ask(more), (error) => {
      assert.ok(APICallError.isInstance(error), String(error));
      assert.equal(error.statusCode, 400);
      assert.ok(error.message.includes(name), error.message);
      return true;
    });
  });
}

test("an image part is refused by name", async () => {
  const content = [{ type: "text", text: "What is this?" }, { type: "image", image: new URL("data:image/png;base64,AAAA") }];
  await assert.rejects(ask({ messages: [{ role: "user", content }] }), (error) => error.statusCode === 400 && error.message.includes("messages[0].content[1].type"));
});

test("a prompt beyond the context and an unknown model say so", async () => {
  await assert.rejects(ask({ messages: [{ role: "user", content: "word ".repeat(20_000) }] }),
    (error) => error.statusCode === 400 && JSON.parse(error.responseBody).error.code === "context_length_exceeded");
  await assert.rejects(ask({ model: provider("someone-else") }), (error) => error.statusCode === 404 && error.message.includes("someone-else"));
});

test("leaving a stream ends the work", async () => {
  const controller = new AbortController();
  const result = streamText(options({ maxOutputTokens: 2000, abortSignal: controller.signal, onError: () => {}, ...fields({ ignore_eos: true }) }));
  try {
    for await (const _ of result.textStream) controller.abort();
  } catch {
    // how the SDK says that it was aborted
  }
  await idle();
});

test("many at once get their own answers", async () => {
  const count = async (i) => (await ask({ messages: [{ role: "user", content: `Repeat the number ${i}.` }], maxOutputTokens: 8 })).usage.inputTokens;
  const numbers = [...Array(12).keys()].map((i) => 10 ** (i % 6));
  const alone = [];
  for (const number of numbers) alone.push(await count(number));
  assert.deepEqual(await Promise.all(numbers.map(count)), alone);
});
