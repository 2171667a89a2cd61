// The engine's half of the page. Every pixel of it comes from the engine's own events.

import { BlockMapView } from "./blocks.js";
import { $, number } from "./dom.js";
import { listen } from "./listen.js";
import { readTheme, Slots } from "./looks.js";
import { pickable } from "./pick.js";
import { EngineState } from "./replay.js";
import { showRequests } from "./requests.js";
import { percent, seconds, Spark } from "./sparks.js";
import { columnAt, describeStep, drawStrip, visibleColumns } from "./strip.js";

const KEPT_STEPS = 400;
const DRAW_EVERY_MS = 60;
const CALM_EVERY_MS = 500; // for readers who asked for little motion
const SAY_EVERY_MS = 8000; // to screen readers

let state = null;
let theme = readTheme();
let columns = []; // of the strip: {event, slots}, or null where the stream was interrupted
let selectedStep = null; // counted from the newest
let redrawAll = true;
let isDue = false;
let drawnAt = 0;
let heardAt = 0;
let saidAt = 0;
const slots = new Slots();
const blockMap = new BlockMapView($("blocks"));
const sparks = {
  ttft: new Spark("ttft", seconds),
  tpot: new Spark("tpot", seconds),
  step: new Spark("step", seconds),
  kv: new Spark("kv", percent, 1),
};
const calm = matchMedia("(prefers-reduced-motion: reduce)");

// --- events -----------------------------------------------------------------------------------------------------------

function take(event) {
  heardAt = performance.now();
  if (event.type === "snapshot") {
    if (state) addColumn(null);
    state = new EngineState(event);
    redrawAll = true;
  } else {
    state.apply(event);
    note(event);
  }
  const known = new Set([...state.requests.keys(), ...(event.scheduled ?? []).map(({ id }) => id)]);
  slots.keepOnly(known);
  schedule();
}

function note(event) {
  for (const { tpot_s } of event.finished) sparks.tpot.add(tpot_s);
  sparks.kv.add(event.kv.usage);
  if (event.type !== "step") return;
  sparks.step.add(event.seconds);
  for (const { ttft_s } of event.scheduled) sparks.ttft.add(ttft_s);
  addColumn({ event, slots: Object.fromEntries(event.scheduled.map(({ id }) => [id, slots.of(id)])) });
}

function addColumn(column) {
  columns.push(column);
  if (columns.length > KEPT_STEPS) columns = columns.slice(-KEPT_STEPS / 2);
  if (selectedStep === null) return;
  selectedStep += 1; // the same step, one further from the newest, until it leaves the picture
  if (selectedStep >= visibleColumns($("strip").clientWidth)) selectedStep = null;
}

// --- drawing ----------------------------------------------------------------------------------------------------------

function schedule() {
  if (isDue) return;
  isDue = true;
  const wait = (calm.matches ? CALM_EVERY_MS : DRAW_EVERY_MS) - (performance.now() - drawnAt);
  setTimeout(() => requestAnimationFrame(draw), Math.max(0, wait));
}

function draw() {
  isDue = false;
  if (!state || !$("blocks").clientWidth) return; // not shown now
  drawnAt = performance.now();
  drawStrip($("strip"), columns, state.engine.max_num_batched_tokens, theme, selectedStep);
  blockMap.draw(state, slots, theme, redrawAll);
  redrawAll = false;
  for (const spark of Object.values(sparks)) spark.draw(theme);
  showRequests(state, slots, (drawnAt - heardAt) / 1000);
  showText();
}

function showText() {
  const { held, shared, cached } = state.count();
  const total = number(state.engine.num_blocks);
  const text = `Running ${state.requests.size}, waiting ${state.queue.num_waiting}; ${number(held)} of ${total} blocks held, `
    + `${number(shared)} shared, ${number(cached)} kept for reuse`;
  $("summary").textContent = text;
  if (performance.now() - saidAt > SAY_EVERY_MS && $("spoken").textContent !== text) {
    saidAt = performance.now();
    $("spoken").textContent = text;
  }
  showReadout($("strip-text"), describeStep(columns.at(-1 - (selectedStep ?? 0))), selectedStep !== null);
  showReadout($("blocks-text"), blockMap.describe(state), blockMap.selected !== null);
}

// What the reader has picked is read out; what merely happens is not.
function showReadout(node, text, isPicked) {
  node.ariaLive = isPicked ? "polite" : "off";
  if (node.textContent !== text) node.textContent = text;
}

function redraw() {
  redrawAll = true;
  schedule();
}

// --- wiring -----------------------------------------------------------------------------------------------------------

function selectStep(index) {
  const last = Math.min(columns.length, visibleColumns($("strip").clientWidth)) - 1;
  selectedStep = index === null || last < 0 ? null : Math.max(0, Math.min(last, index));
  schedule();
}

function selectBlock(square) {
  if (!state || !blockMap.plan) return;
  blockMap.select(square === null ? null : Math.max(0, Math.min(blockMap.plan.squares - 1, square)), state);
  schedule();
}

pickable($("strip"), {
  at: (x) => columnAt(x, $("strip").clientWidth),
  current: () => selectedStep,
  start: 0,
  moves: () => ({ ArrowLeft: 1, ArrowRight: -1 }),
  select: selectStep,
});
pickable($("blocks"), {
  at: (x, y) => blockMap.squareAt(x, y),
  current: () => blockMap.selected,
  start: 0,
  moves: () => ({ ArrowLeft: -1, ArrowRight: 1, ArrowUp: -blockMap.plan.columns, ArrowDown: blockMap.plan.columns }),
  select: selectBlock,
});

for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
  matchMedia(query).addEventListener("change", () => { theme = readTheme(); redraw(); });
}
new ResizeObserver(redraw).observe($("watch"));
setInterval(() => { if (state?.queue.num_waiting && !document.hidden) schedule(); }, 1000); // waiting times go on between events

listen(take, () => { $("summary").textContent = "The engine's events cannot be reached; trying again."; });
