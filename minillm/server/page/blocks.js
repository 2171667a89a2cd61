// The block map: one square a block of the KV cache, in the order in which they lie in memory.

import { number } from "./dom.js";
import { fit, hasHole, hatch, NUM_COLOURS, shortId } from "./looks.js";

const LARGEST = 18; // pixels of a square and its gap
const SMALLEST = 4;
const TALLEST = 200; // pixels of the map
const MOST_STRIPES = 3; // holders of a shared block that are drawn

// How `count` blocks are laid out in `width` pixels: pitch and columns of the squares, and how many blocks one square stands for.
export function layout(count, width) {
  for (let group = 1; ; group += 1) {
    const squares = Math.ceil(count / group);
    for (let pitch = LARGEST; pitch >= SMALLEST; pitch -= 1) {
      const columns = Math.max(1, Math.floor(width / pitch));
      const rows = Math.ceil(squares / columns);
      if (rows * pitch <= TALLEST) return { pitch, columns, rows, group, squares };
    }
  }
}

export class BlockMapView {
  constructor(canvas) {
    this.canvas = canvas;
    this.plan = null;
    this.selected = null;
  }

  // all: draw every square, not only those whose blocks have changed.
  draw(state, slots, theme, all) {
    const plan = layout(state.holders.length, this.canvas.clientWidth);
    const { context, resized, width, height } = fit(this.canvas, plan.rows * plan.pitch);
    this.plan = plan;
    if (all || resized) {
      context.clearRect(0, 0, width, height);
      for (let square = 0; square < plan.squares; square += 1) this.drawSquare(context, square, state, slots, theme);
    } else {
      for (const square of new Set(Array.from(state.changed, (block) => Math.floor(block / plan.group)))) {
        this.drawSquare(context, square, state, slots, theme);
      }
    }
    state.changed.clear();
  }

  drawSquare(context, square, state, slots, theme) {
    const { pitch, columns, group } = this.plan;
    const size = pitch - (pitch > 5 ? 2 : 1);
    const x = (square % columns) * pitch;
    const y = Math.floor(square / columns) * pitch;
    const block = this.busiest(square * group, state);
    const holders = state.holders[block];
    context.clearRect(x, y, pitch, pitch);
    if (holders.length) this.drawHeld(context, x, y, size, holders, slots, theme);
    else if (state.named.has(block)) drawCached(context, x, y, size, theme);
    else drawFree(context, x, y, size, theme);
    if (this.selected === square) {
      context.strokeStyle = theme.ink;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, size - 2, size - 2);
    }
  }

  // Where a square stands for several blocks it shows the one that is held by most.
  busiest(first, state) {
    let best = first;
    const end = Math.min(first + this.plan.group, state.holders.length);
    for (let block = first + 1; block < end; block += 1) {
      if (state.holders[block].length > state.holders[best].length) best = block;
    }
    return best;
  }

  drawHeld(context, x, y, size, holders, slots, theme) {
    const stripes = holders.slice(0, size > 9 ? MOST_STRIPES : 2);
    stripes.forEach((id, i) => {
      const slot = slots.of(id);
      context.fillStyle = theme.colours[slot % NUM_COLOURS];
      const left = Math.round((size * i) / stripes.length);
      context.fillRect(x + left, y, Math.round((size * (i + 1)) / stripes.length) - left, size);
    });
    if (holders.length === 1 && hasHole(slots.of(holders[0])) && size > 4) {
      const hole = Math.max(2, Math.round(size / 3));
      context.fillStyle = theme.ground;
      context.fillRect(x + Math.round((size - hole) / 2), y + Math.round((size - hole) / 2), hole, hole);
    }
    if (holders.length > 1) {
      context.strokeStyle = theme.ink;
      context.lineWidth = size > 12 ? 1.5 : 1;
      const inset = context.lineWidth / 2;
      context.strokeRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
    }
  }

  // The square at a place of the canvas, or null.
  squareAt(x, y) {
    if (!this.plan) return null;
    const column = Math.floor(x / this.plan.pitch);
    const square = Math.floor(y / this.plan.pitch) * this.plan.columns + column;
    return column < this.plan.columns && square >= 0 && square < this.plan.squares ? square : null;
  }

  select(square, state) {
    for (const at of [this.selected, square]) if (at !== null) state.changed.add(at * this.plan.group);
    this.selected = square;
  }

  describe(state) {
    if (this.selected === null) return describeSquares(this.plan.group, state.engine.block_size);
    const first = this.selected * this.plan.group;
    const block = this.busiest(first, state);
    const holders = state.holders[block];
    const more = this.plan.group > 1 ? ` (the busiest of ${this.plan.group} in this square)` : "";
    const name = `Block ${number(block)}${more}`;
    if (holders.length > 1) return `${name}: shared by ${holders.map(shortId).join(", ")}`;
    if (holders.length) return `${name}: held by ${shortId(holders[0])}`;
    return state.named.has(block) ? `${name}: free, but its contents can still be reused` : `${name}: free`;
  }
}

function describeSquares(group, blockSize) {
  return group > 1
    ? `Each square is ${group} blocks of ${blockSize} tokens.`
    : `Each square is one block: room for ${number(blockSize)} tokens.`;
}

function drawCached(context, x, y, size, theme) {
  context.globalAlpha = 0.22;
  context.fillStyle = theme.quiet;
  context.fillRect(x, y, size, size);
  context.globalAlpha = 1;
  if (size > 6) hatch(context, x, y, size, size, theme.ground);
}

function drawFree(context, x, y, size, theme) {
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
}
