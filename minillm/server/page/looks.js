// How things look: a colour for each request, and the patterns that tell kinds apart without colour.

export const NUM_COLOURS = 8;

// With more requests than colours the colours come again, marked with a hole.
export const hasHole = (slot) => Math.floor(slot / NUM_COLOURS) % 2 === 1;

// Colours go to requests as they come and return when they leave, so those that are here together differ as far as possible.
export class Slots {
  constructor() {
    this.taken = new Map(); // request id -> slot
  }

  of(id) {
    if (!this.taken.has(id)) {
      const used = new Set(this.taken.values());
      let slot = 0;
      while (used.has(slot)) slot += 1;
      this.taken.set(id, slot);
    }
    return this.taken.get(id);
  }

  keepOnly(ids) {
    for (const id of this.taken.keys()) if (!ids.has(id)) this.taken.delete(id);
  }
}

export const shortId = (id) => {
  const name = id.replace(/^request-/, "#");
  return name.length > 14 ? `${name.slice(0, 13)}…` : name;
};

// The theme as it is now. Read again when it changes.
export function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return {
    colours: Array.from({ length: NUM_COLOURS }, (_, i) => value(`--request-${i}`)),
    ground: value("--raised"),
    ink: value("--ink"),
    quiet: value("--quiet"),
    line: value("--line"),
    wrong: value("--wrong"),
    font: `11px ${getComputedStyle(document.body).fontFamily}`,
  };
}

// Sizes a canvas to its box in device pixels. Returns its 2d context, in CSS pixels, and its width and height.
export function fit(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const size = [Math.round(width * ratio), Math.round(height * ratio)];
  const resized = canvas.width !== size[0] || canvas.height !== size[1];
  if (resized) {
    [canvas.width, canvas.height] = size;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height, resized };
}

// Diagonal lines over whatever has been filled: down to the right, or crossed.
export function hatch(context, x, y, width, height, colour, crossed = false) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.beginPath();
  for (let at = -height; at < width; at += 5) {
    context.moveTo(x + at, y + height);
    context.lineTo(x + at + height, y);
    if (crossed) {
      context.moveTo(x + at, y);
      context.lineTo(x + at + height, y + height);
    }
  }
  context.strokeStyle = colour;
  context.lineWidth = 1.2;
  context.stroke();
  context.restore();
}
