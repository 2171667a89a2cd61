// Talking with the server: POST /v1/chat/completions and its server-sent events.

import { request } from "./key.js";

// What the server said no to; param: the field it names.
class Refusal extends Error {
  constructor(message, param) {
    super(message);
    this.param = param;
  }
}

// The data of each server-sent event; comments are passed over.
export async function* serverEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield part.slice("data: ".length);
  }
}

// Streams one answer. Calls onText with the whole text so far. Returns {finish, usage, firstAt, lastAt}; times in ms since the page's start.
export async function ask(body, signal, onText) {
  const response = await request("v1/chat/completions", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal,
  });
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({ error: { message: `the server answered ${response.status}` } }));
    throw new Refusal(error.message, error.param);
  }
  const result = { finish: null, usage: null, firstAt: null, lastAt: null };
  let text = "";
  for await (const data of serverEvents(response.body)) {
    if (data === "[DONE]") return result;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Refusal(chunk.error.message, chunk.error.param);
    if (chunk.usage) result.usage = chunk.usage;
    const choice = chunk.choices[0];
    if (!choice) continue;
    if (choice.finish_reason) {
      result.finish = choice.finish_reason;
      result.lastAt = performance.now(); // the end-of-sequence token counts, though it has no text
    }
    if (choice.delta.content) {
      result.lastAt = performance.now();
      result.firstAt ??= result.lastAt;
      text += choice.delta.content;
      onText(text);
    }
  }
  throw new Refusal("the connection ended before the answer did");
}
