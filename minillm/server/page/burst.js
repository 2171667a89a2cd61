// The button that gives the engine something to do: a dozen requests with one long beginning, in two waves.

import { serverEvents } from "./api.js";
import { $, number } from "./dom.js";
import { request } from "./key.js";

const SECOND_WAVE_MS = 2500;
const CHARS_PER_TOKEN = 3; // rather few, so that the prompts surely fit

const RULES = [
  "You are the librarian of a small town and answer every question that visitors bring to your desk.",
  "Answer in plain words, one thought after the other, as if the visitor had all afternoon.",
  "If you know a story that belongs to the question, tell it; if you do not, say what you would look up and where.",
  "Never make fun of a question: whoever asks has thought about it longer than you have.",
  "Name the shelf on which the visitor finds more: history is upstairs, nature by the window, machines in the cellar.",
  "The library closes at six; whoever is still reading then may stay until the chapter ends.",
  "There is tea in the reading room, and an old dog who belongs to nobody and sleeps under the atlas.",
  "Children may borrow four books at once, grown-ups three, because grown-ups bring them back later.",
  "You have read most of what is here, some of it twice, and you like to say which page surprised you.",
  "When two books disagree, give both, and say which one you would rather have with you on a long journey.",
];
const LONGER = " I have asked three people already, and each of them told me something else, so please begin at the beginning and leave nothing out.";
const QUESTIONS = [
  "Why is the sky dark at night?",
  "How does a lighthouse keeper spend the winter?" + LONGER,
  "What is inside a clock?",
  "Who drew the first map of the world?" + LONGER + LONGER,
  "How do birds find their way?",
  "Why does bread rise?" + LONGER,
  "What did people do before there was money?",
  "How is a bridge built over deep water?" + LONGER,
  "What makes a good story?",
  "Why do leaves turn red in autumn?",
  "How did sailors know where they were?" + LONGER,
  "What is the oldest tree?",
];

// Several prompts share one HTTP request: a browser opens no more than six connections, and the chat needs one of them.
function groups(maxModelLen) {
  const answer = Math.max(8, Math.min(160, Math.floor(maxModelLen / 4)));
  const room = Math.max(0, (maxModelLen - answer) * CHARS_PER_TOKEN - 600);
  let system = "";
  for (const rule of RULES) if (system.length + rule.length < Math.min(room, 1400)) system += `${rule} `;
  const prompt = (question) => `${system}\n\nVisitor: ${question}\nLibrarian:`.slice(-Math.max(40, room + 500));
  const pick = (from, to) => QUESTIONS.slice(from, to).map(prompt);
  return [
    { afterMs: 0, prompts: pick(0, 4), maxTokens: answer },
    { afterMs: 0, prompts: pick(4, 8), maxTokens: Math.ceil(answer / 2) },
    { afterMs: SECOND_WAVE_MS, prompts: pick(8, 12), maxTokens: Math.ceil(answer / 1.5) },
  ];
}

let running = null; // AbortController of the burst under way

async function burst() {
  const control = running = new AbortController();
  $("burst").textContent = "Stop the burst";
  let answered = 0;
  const show = (text) => { if (running === control) $("burst-text").textContent = text; };
  const onAnswer = () => { answered += 1; show(`${answered} of ${QUESTIONS.length} answered`); };
  show(`0 of ${QUESTIONS.length} answered`);
  try {
    const response = await request("v1/models", { signal: control.signal });
    if (!response.ok) throw new Error(await complaint(response));
    const { data } = await response.json();
    await Promise.all(groups(data[0].max_model_len).map((group) => sendGroup(group, control.signal, onAnswer)));
    show(`All ${QUESTIONS.length} answered. Send another, and the prompts' beginning is found in the cache.`);
  } catch (error) {
    show(control.signal.aborted ? "Stopped; what was running has been taken out of the engine." : `The burst failed: ${error.message}`);
    control.abort(); // one group that fails takes the others with it
  } finally {
    if (running === control) {
      running = null;
      $("burst").textContent = "Send a burst";
    }
  }
}

async function sendGroup({ afterMs, prompts, maxTokens }, signal, onAnswer) {
  if (afterMs) await pause(afterMs, signal);
  const body = { prompt: prompts, max_tokens: maxTokens, temperature: 0.8, ignore_eos: true, stream: true };
  const response = await request("v1/completions", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal,
  });
  if (!response.ok) throw new Error(await complaint(response));
  for await (const data of serverEvents(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    for (const choice of chunk.choices) if (choice.finish_reason) onAnswer();
  }
  throw new Error("the connection ended before the answers did");
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); });
  });
}

async function complaint(response) {
  const { error } = await response.json().catch(() => ({}));
  return error?.message ?? `the server answered ${number(response.status)}`;
}

$("burst").addEventListener("click", () => (running ? running.abort() : burst()));
