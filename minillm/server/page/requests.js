// The two lists: who runs, and who waits.

import { $, element, number } from "./dom.js";
import { hasHole, NUM_COLOURS, shortId } from "./looks.js";

const ROWS = 8;

// state: EngineState; slots: colours; ageS: seconds since its last event.
export function showRequests(state, slots, ageS) {
  const running = [...state.requests].map(([id, request]) => ({ id, text: progress(request), slot: slots.of(id) }));
  const waiting = state.queue.head.map((item) => ({
    id: item.id,
    text: `${item.num_preemptions ? "put back; " : ""}here for ${number(item.since_arrival_s + ageS, 1)} s`,
    slot: null,
  }));
  fill($("running"), running, running.length);
  fill($("waiting"), waiting, state.queue.num_waiting);
  $("num-running").textContent = number(running.length);
  $("num-waiting").textContent = number(state.queue.num_waiting);
}

function progress({ num_prompt_tokens, num_tokens, num_computed_tokens }) {
  const generated = num_tokens - num_prompt_tokens;
  if (num_tokens - num_computed_tokens > 1) return `${number(num_computed_tokens)} of ${number(num_tokens)} tokens computed`;
  return `${number(num_prompt_tokens)} in, ${number(generated)} out`;
}

function fill(list, rows, total) {
  const shown = rows.slice(0, total > ROWS ? ROWS - 1 : ROWS);
  const texts = shown.map(({ id, text, slot }) => [slot, shortId(id), text]);
  if (total > shown.length) texts.push([null, "", `and ${number(total - shown.length)} more`]);
  if (!texts.length) texts.push([null, "", "nobody"]);
  while (list.children.length > texts.length) list.lastChild.remove();
  texts.forEach(([slot, name, text], i) => {
    const row = list.children[i] ?? list.appendChild(newRow());
    const [swatch, label, detail] = row.children;
    swatch.hidden = slot === null;
    swatch.className = `swatch request-${slot % NUM_COLOURS}${hasHole(slot) ? " hole" : ""}`;
    if (label.textContent !== name) label.textContent = name;
    if (detail.textContent !== text) detail.textContent = text;
  });
}

function newRow() {
  const row = element("li");
  row.append(element("span", "swatch"), element("span", "name"), element("span", "detail"));
  return row;
}
