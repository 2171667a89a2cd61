// The strip: one column a step, newest at the right, stacked by request.

import { number } from "./dom.js";
import { fit, hatch, NUM_COLOURS, shortId } from "./looks.js";

const HEIGHT = 170;
const LEFT = 44; // room for the axis
const TOP = 18; // and for the budget's label and the marks of preemption
const PITCH = 10;
const BAR = 8;
const ONE_TOKEN = 10; // pixels of a lone token: the scale bends so that one decode can be seen beside a budget of thousands

// tokens -> pixels, for sums of tokens from the bottom up: 0 at 0, the whole height at the budget.
export function scaleFor(budget, height) {
  const power = budget > height / ONE_TOKEN ? Math.log(height / ONE_TOKEN) / Math.log(budget) : 1;
  return (tokens) => height * (tokens / budget) ** power;
}

export function visibleColumns(width) {
  return Math.max(1, Math.floor((width - LEFT) / PITCH));
}

// columns: {event, slots: {id: slot}} or null where the stream was interrupted; selected: index from the newest, or null.
export function drawStrip(canvas, columns, budget, theme, selected) {
  const { context, width, height } = fit(canvas, HEIGHT);
  const base = height - 2;
  const scale = scaleFor(budget, base - TOP);
  context.clearRect(0, 0, width, height);
  drawAxis(context, width, base, budget, scale, theme);
  const shown = columns.slice(-visibleColumns(width));
  shown.forEach((column, i) => {
    const x = width - (shown.length - i) * PITCH;
    if (column === null) return drawGap(context, x, base, theme);
    drawColumn(context, x, base, column, scale, theme);
    if (selected === shown.length - 1 - i) {
      context.strokeStyle = theme.ink;
      context.lineWidth = 1.5;
      context.strokeRect(x - 1.5, TOP - 14, BAR + 3, base - TOP + 14.5);
    }
  });
}

function drawAxis(context, width, base, budget, scale, theme) {
  context.font = theme.font;
  context.fillStyle = theme.quiet;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.lineWidth = 1;
  let lastY = base + 20;
  for (let tokens = 1; tokens < budget; tokens *= 4) {
    const y = base - scale(tokens);
    if (lastY - y < 18 || y - TOP < 18) continue;
    lastY = y;
    context.fillText(number(tokens), LEFT - 8, y);
    context.strokeStyle = theme.line;
    context.beginPath();
    context.moveTo(LEFT - 4, y);
    context.lineTo(width, y);
    context.stroke();
  }
  context.fillText(number(budget), LEFT - 8, TOP);
  context.strokeStyle = theme.quiet;
  context.setLineDash([4, 3]);
  context.beginPath();
  context.moveTo(LEFT - 4, TOP);
  context.lineTo(width, TOP);
  context.stroke();
  context.setLineDash([]);
  context.textAlign = "left";
  context.fillText("tokens a step may compute", LEFT - 4, TOP - 10);
}

function drawGap(context, x, base, theme) {
  context.strokeStyle = theme.quiet;
  context.setLineDash([2, 4]);
  context.beginPath();
  context.moveTo(x + BAR / 2, TOP);
  context.lineTo(x + BAR / 2, base);
  context.stroke();
  context.setLineDash([]);
}

function drawColumn(context, x, base, { event, slots }, scale, theme) {
  let tokens = 0;
  for (const item of stacked(event)) {
    const bottom = base - scale(tokens);
    tokens += item.num_new_tokens;
    const top = base - scale(tokens);
    const gap = bottom - top > 3 ? 1 : 0; // a line between neighbours, where there is room for one
    context.fillStyle = theme.colours[slots[item.id] % NUM_COLOURS];
    context.fillRect(x, top + gap, BAR, bottom - top - gap);
    if (item.kind !== "decode") hatch(context, x, top + gap, BAR, bottom - top - gap, theme.ground, item.kind === "chunk");
  }
  if (event.preempted.length) {
    context.fillStyle = theme.wrong;
    context.beginPath();
    context.moveTo(x - 1, TOP - 13);
    context.lineTo(x + BAR + 1, TOP - 13);
    context.lineTo(x + BAR / 2, TOP - 4);
    context.fill();
  }
}

// Decodes at the bottom, where they stay put from step to step; prompts on top of them.
const stacked = (event) => [...event.scheduled].sort((a, b) => (a.kind !== "decode") - (b.kind !== "decode"));

// Which column lies at x, counted from the newest.
export function columnAt(x, width) {
  return Math.floor((width - x) / PITCH);
}

// One step in words. column: as given to drawStrip; undefined: there is none.
export function describeStep(column) {
  if (column === undefined) return "No step yet: ask something, or send a burst.";
  if (column === null) return "Here the page was not listening.";
  const { event } = column;
  const kinds = { decode: "decoding", prefill: "in prefill", chunk: "with a chunk of its prompt" };
  const parts = [];
  for (const [kind, words] of Object.entries(kinds)) {
    const items = event.scheduled.filter((item) => item.kind === kind);
    const tokens = items.reduce((sum, item) => sum + item.num_new_tokens, 0);
    if (items.length) parts.push(`${items.length} ${words}${kind === "decode" ? "" : ` (${number(tokens)} tokens)`}`);
  }
  const cached = event.scheduled.reduce((sum, item) => sum + (item.num_cached_tokens ?? 0), 0);
  if (cached) parts.push(`${number(cached)} tokens found in the cache`);
  if (event.preempted.length) parts.push(`put back: ${event.preempted.map(shortId).join(", ")}`);
  if (event.finished.length) parts.push(`finished: ${event.finished.map(({ id }) => shortId(id)).join(", ")}`);
  return `Step ${number(event.step)}, ${number(event.seconds * 1000)} ms: ${parts.join("; ")}`;
}
