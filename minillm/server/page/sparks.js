// Sparklines: the last values of a quantity, with the newest in figures.

import { $, number } from "./dom.js";
import { fit } from "./looks.js";

const HEIGHT = 30;
const KEPT = 60;

export class Spark {
  // name: of the elements spark-NAME (canvas) and value-NAME; format: value -> text; most: top of the scale, else the largest shown.
  constructor(name, format, most = null) {
    Object.assign(this, { name, format, most, values: [] });
  }

  add(value) {
    if (value === null || value === undefined) return;
    this.values.push(value);
    if (this.values.length > KEPT) this.values.shift();
  }

  draw(theme) {
    const { values } = this;
    const { context, width, height } = fit($(`spark-${this.name}`), HEIGHT);
    context.clearRect(0, 0, width, height);
    const text = values.length ? this.format(values.at(-1)) : "–";
    if ($(`value-${this.name}`).textContent !== text) $(`value-${this.name}`).textContent = text;
    if (!values.length) return;
    const most = this.most ?? Math.max(...values, Number.MIN_VALUE);
    const x = (i) => 2 + ((width - 5) * i) / (KEPT - 1);
    const y = (value) => height - 3 - ((height - 6) * value) / most;
    const first = KEPT - values.length;
    context.strokeStyle = theme.quiet;
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    context.beginPath();
    values.forEach((value, i) => context.lineTo(x(first + i), y(value)));
    context.stroke();
    context.fillStyle = theme.ink;
    context.beginPath();
    context.arc(x(KEPT - 1), y(values.at(-1)), 2.5, 0, 2 * Math.PI);
    context.fill();
  }
}

export const seconds = (value) => (value < 1 ? `${number(value * 1000)} ms` : `${number(value, 2)} s`);
export const percent = (value) => `${number(100 * value)} %`;
