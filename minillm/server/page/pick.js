// A drawing whose parts can be picked: with the pointer, or with the arrow keys once it has the focus. Escape lets go.

// at(x, y): the part there, or null; moves(): {key: by how much it moves}; select(part or null).
export function pickable(canvas, { at, current, start, moves, select }) {
  canvas.addEventListener("pointermove", (event) => select(at(event.offsetX, event.offsetY)));
  canvas.addEventListener("pointerdown", (event) => select(at(event.offsetX, event.offsetY)));
  canvas.addEventListener("pointerleave", () => { if (document.activeElement !== canvas) select(null); });
  canvas.addEventListener("blur", () => select(null));
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return select(null);
    const by = moves()[event.key];
    if (by === undefined) return undefined;
    event.preventDefault();
    return select(current() === null ? start : current() + by);
  });
}
