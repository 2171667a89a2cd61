import { ask } from "./api.js";
import { $, element, number } from "./dom.js";
import { samplingFields } from "./settings.js";
import { checkHealth } from "./status.js";
import { showText } from "./text.js";

// The chat page. State is one list of messages; everything shown is text set through textContent.

const messages = []; // what the model is sent: {role, content}
let running = null; // AbortController of the answer that is being written

// --- small things ---------------------------------------------------------------------------------------------------

// Changes the page and keeps the newest text in view, unless the reader has scrolled up.
function following(change) {
  const { scrollHeight, scrollTop, clientHeight } = $("scroller");
  change();
  if (scrollHeight - scrollTop - clientHeight < 60) scrollDown();
}

function scrollDown() {
  $("scroller").scrollTop = $("scroller").scrollHeight;
}

function addTurn(role, who) {
  const turn = element("article", `turn ${role}`);
  turn.append(element("p", "who", who), element("div", "text"));
  $("log").append(turn);
  return turn;
}

// --- one turn ---------------------------------------------------------------------------------------------------------

async function send(content) {
  $("empty").hidden = true;
  for (const retry of $("log").querySelectorAll(".problem button")) retry.remove(); // the talk has gone on
  const question = addTurn("user", "You");
  showText(question.querySelector(".text"), content);
  messages.push({ role: "user", content });
  await answer(content);
}

// Where the context has less room than the longest answer asked for, the room itself is the limit.
async function askWithin(body, signal, onText) {
  try {
    return await ask(body, signal, onText);
  } catch (error) {
    if (error.param !== "max_tokens") throw error;
    return ask({ ...body, max_tokens: undefined }, signal, onText);
  }
}

// Answers the last message, which holds `content`. A turn that brought nothing is taken out of the history again.
async function answer(content) {
  const turn = addTurn("assistant", $("model").textContent || "Model");
  const body = turn.querySelector(".text");
  body.classList.add("waiting");
  turn.setAttribute("aria-busy", "true"); // screen readers wait for the whole answer instead of reading it in crumbs
  scrollDown();
  const control = new AbortController();
  setRunning(control);
  const startedAt = performance.now();
  let text = "";
  let firstAt = null;
  let drawing = 0;
  const draw = () => {
    drawing = 0;
    following(() => showText(body, text));
  };
  try {
    const request = { messages, stream: true, stream_options: { include_usage: true }, ...samplingFields() };
    const result = await askWithin(request, control.signal, (sofar) => {
      text = sofar;
      if (firstAt === null) checkHealth(); // the one moment at which this request is sure to be running
      firstAt ??= performance.now();
      if (text.trim()) body.classList.remove("waiting");
      drawing ||= requestAnimationFrame(draw);
    });
    draw();
    following(() => showFacts(turn, startedAt, result));
  } catch (error) {
    draw();
    if (error.name === "AbortError") following(() => showStopped(turn, startedAt, firstAt));
    else showProblem(turn, error, content);
  } finally {
    cancelAnimationFrame(drawing);
    body.classList.remove("waiting");
    turn.removeAttribute("aria-busy");
    if (turn.isConnected) { // not cleared by "New chat" meanwhile
      if (!text || turn.classList.contains("failed")) messages.pop();
      else messages.push({ role: "assistant", content: text });
    }
    if (running === control) setRunning(null);
    if (turn.isConnected) checkHealth();
  }
}

function showFacts(turn, startedAt, { finish, usage, firstAt, lastAt }) {
  const facts = element("p", "facts");
  facts.title = "Times include the network; tokens are counted by the server";
  const add = (text) => facts.append(element("span", "", text));
  if (firstAt !== null) {
    const rate = usage && lastAt > firstAt ? `, then ${number((usage.completion_tokens - 1) / ((lastAt - firstAt) / 1000), 1)} tokens/s` : "";
    add(`measured in this browser: first token after ${number((firstAt - startedAt) / 1000, 2)} s${rate}`);
  }
  if (usage) add(`${number(usage.prompt_tokens)} tokens in, ${number(usage.completion_tokens)} out`);
  if (finish === "length") add("cut off: token limit reached");
  turn.append(facts);
}

function showStopped(turn, startedAt, firstAt) {
  const facts = element("p", "facts");
  facts.append(element("span", "", "stopped by you"));
  if (firstAt !== null) facts.append(element("span", "", `measured in this browser: first token after ${number((firstAt - startedAt) / 1000, 2)} s`));
  turn.append(facts);
}

function kindly(error) {
  if (error instanceof TypeError) return "The server cannot be reached. Is it still running?";
  if (error.param === "messages") return `This chat is longer than the model can read: shorten the message, or start a new chat. (${error.message})`;
  return `That did not work: ${error.message}`;
}

function showProblem(turn, error, content) {
  turn.classList.add("failed");
  const problem = element("div", "problem");
  problem.setAttribute("role", "alert");
  problem.append(element("p", "", kindly(error)));
  turn.append(problem);
  if (error.param === "messages") { // the same words would fail again: hand them back for shortening
    $("input").value ||= content;
    fitInput();
    scrollDown();
    return;
  }
  const retry = element("button", "", "Try again");
  retry.type = "button";
  retry.addEventListener("click", () => {
    if (running) return;
    turn.remove();
    messages.push({ role: "user", content });
    answer(content);
    $("input").focus();
  });
  problem.append(retry);
  scrollDown();
}

function setRunning(control) {
  running = control;
  const stopHadFocus = document.activeElement === $("stop");
  $("send").hidden = control !== null;
  $("stop").hidden = control === null;
  if (stopHadFocus) $("input").focus();
}

// --- wiring -----------------------------------------------------------------------------------------------------------

function fitInput() {
  const input = $("input");
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
}

function submit() {
  const content = $("input").value.trim();
  if (!content || running) return;
  $("input").value = "";
  fitInput();
  send(content);
}

function newChat() {
  $("log").replaceChildren(); // first: an answer that is cut off here must not enter the new chat
  running?.abort();
  messages.length = 0;
  $("empty").hidden = false;
  $("input").focus();
}

$("composer").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
$("input").addEventListener("input", fitInput);
$("input").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return; // composing: Enter picks a character, not "send"
  event.preventDefault();
  submit();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if ($("settings").open) {
    $("settings").open = false;
    $("settings").querySelector("summary").focus();
  } else {
    running?.abort();
  }
});
document.addEventListener("click", (event) => {
  if (!$("settings").contains(event.target)) $("settings").open = false;
});
$("stop").addEventListener("click", () => running?.abort());
$("new-chat").addEventListener("click", newChat);
for (const example of document.querySelectorAll(".examples button")) {
  example.addEventListener("click", () => { if (!running) { send(example.textContent); $("input").focus(); } });
}

