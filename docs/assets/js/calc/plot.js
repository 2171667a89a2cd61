/* The roofline as an SVG of the width there is, so that its text keeps its size on a phone. */
(function () {
  "use strict";

  const { form } = window.course;
  const { svg } = form;
  const LOG = Math.log10;
  const SMALL = 520; // px: narrower than this, labels are shortened

  function tick(value, unit) {
    const [prefix, size] = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]].find(([, s]) => value >= s) || ["", 1];
    return `${Number((value / size).toPrecision(3))}${unit ? ` ${prefix}${unit}` : prefix}`;
  }

  /* Whole decades that hold all values. */
  function decades(values) {
    return [Math.floor(LOG(Math.min(...values))), Math.ceil(LOG(Math.max(...values)))];
  }

  /* roofs: [{name, peak FLOP/s, bandwidth B/s}], the first that of the linear layers; points: [{kind, phase, x, y, label}]. */
  function roofline(roofs, points) {
    return inBox((width) => picture(roofs, points, width));
  }

  function picture(roofs, points, width) {
    const height = Math.round(Math.min(400, Math.max(300, width * 0.58)));
    const left = 46, right = width - 12, top = 26, bottom = height - 44;
    const ridges = roofs.map((r) => r.peak / r.bandwidth);
    const [x0, x1] = decades([0.5, 5000, ...ridges, ...points.map((p) => p.x)]);
    const [y0, y1] = decades([...roofs.map((r) => r.peak * 1.5), ...points.map((p) => p.y), 10 ** x0 * roofs[0].bandwidth]);
    const X = (v) => left + ((LOG(v) - x0) / (x1 - x0)) * (right - left);
    const Y = (v) => bottom - ((LOG(v) - y0) / (y1 - y0)) * (bottom - top);
    const range = (a, b) => [...Array(b - a + 1)].map((_, i) => 10 ** (a + i));

    const grid = [
      ...range(x0, x1).map((v) => [svg("line", { x1: X(v), x2: X(v), y1: top, y2: bottom, class: "grid" }), svg("text", { x: X(v), y: bottom + 16, "text-anchor": v === 10 ** x1 ? "end" : "middle", text: tick(v, "") })]),
      ...range(y0, y1).map((v) => [svg("line", { x1: left, x2: right, y1: Y(v), y2: Y(v), class: "grid" }), svg("text", { x: left - 6, y: Y(v) + 4, "text-anchor": "end", text: tick(v, "") })]),
    ].flat();
    const axes = [
      svg("text", { x: (left + right) / 2, y: height - 8, "text-anchor": "middle", class: "axis", text: "arithmetic intensity, FLOP/byte" }),
      svg("text", { x: 4, y: 14, class: "axis", text: "FLOP/s" }),
    ];
    const lines = roofs.map((roof, i) => {
      const ridge = roof.peak / roof.bandwidth, start = Math.max(10 ** x0, 10 ** y0 / roof.bandwidth);
      const shape = `M${X(start)},${Y(start * roof.bandwidth)} L${X(ridge)},${Y(roof.peak)} H${right}`;
      return [
        i === 0 ? svg("path", { d: `${shape} V${bottom} H${X(start)} Z`, class: "under" }) : null,
        svg("path", { d: shape, class: i ? "roof is-second" : "roof" }),
        svg("line", { x1: X(ridge), x2: X(ridge), y1: Y(roof.peak), y2: bottom, class: "ridge" }),
      ].filter(Boolean);
    }).flat();
    const taken = points.map((p) => [X(p.x) - 7, Y(p.y) - 7, X(p.x) + 7, Y(p.y) + 7]);
    const marks = points.map((point) => mark(point, X(point.x), Y(point.y), { left, right, bottom, width, taken }));
    let end = right;
    const names = roofs.toReversed().flatMap((roof, i) => {
      const start = end - roof.name.length * 6.3, at = end;
      end = start - 34;
      return [svg("line", { x1: start - 24, x2: start - 4, y1: 10, y2: 10, class: i < roofs.length - 1 ? "roof is-second" : "roof" }), svg("text", { x: at, y: 14, "text-anchor": "end", class: "roof-name", text: roof.name })];
    });
    const title = points.map((p) => `${p.label}: ${Number(p.x.toPrecision(3))} FLOP/byte, ${tick(p.y, "FLOP/s")}`).join("; ");
    return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Roofline of ${roofs.map((r) => r.name).join(" and ")}. ${title}` }, grid, axes, names, lines, marks);
  }

  /* A point, and its name at the first place beside it where nothing else stands. taken: boxes [left, top, right, bottom]. */
  function mark(point, x, y, { left, right, bottom, width, taken }) {
    const text = width < SMALL ? point.label.replace("attention", "attn") : point.label, size = text.length * 6.6;
    const inside = (start) => Math.max(left + 2, Math.min(start, right - size));
    const places = [[x + 9, y + 19], [x - 9 - size, y - 9], ...[20, -13, 35, -28, 50, 65, 80].map((down) => [inside(x - size / 2), y + down])];
    const box = ([start, line]) => [start, line - 11, start + size, line + 3];
    const free = ([a, b, c, d]) => a >= left && c <= right && d < bottom && b > 0 && taken.every(([e, f, g, i]) => c < e || g < a || d < f || i < b);
    const place = places.find((at) => free(box(at))) || places[2];
    taken.push(box(place));
    const shape = point.kind === "linear" ? svg("circle", { cx: x, cy: y, r: 6 }) : svg("rect", { x: x - 5, y: y - 5, width: 10, height: 10, transform: `rotate(45 ${x} ${y})` });
    return svg("g", { class: `point is-${point.phase} is-${point.kind}` }, shape, svg("text", { x: place[0], y: place[1], text }));
  }

  /* US dollars over load: a machine's 1/load curve from `full` at load 1, an API's flat price, where they meet, and where you are. */
  function overLoad({ full, api, load, even }) {
    return inBox((width) => {
      const height = 260, left = 58, right = width - 14, top = 26, bottom = height - 44;
      const most = Math.max(2.2 * api, Math.min(full / load, 20 * full) * 1.3, 1.5 * full), least = Math.max(0.01, full / most);
      const X = (l) => left + l * (right - left), Y = (v) => bottom - (v / most) * (bottom - top);
      const money = window.course.units.dollars;
      const grid = [0, 0.2, 0.4, 0.6, 0.8, 1].flatMap((l) => [svg("line", { x1: X(l), x2: X(l), y1: top, y2: bottom, class: "grid" }), svg("text", { x: X(l), y: bottom + 16, "text-anchor": l === 1 ? "end" : "middle", text: `${100 * l} %` })]);
      const step = nice(most / 4), levels = [...Array(Math.floor(most / step) + 1)].map((_, i) => i * step);
      const rows = levels.flatMap((v) => [svg("line", { x1: left, x2: right, y1: Y(v), y2: Y(v), class: "grid" }), svg("text", { x: left - 6, y: Y(v) + 4, "text-anchor": "end", text: money(Number(v.toPrecision(3))) })]);
      const curve = [...Array(101)].map((_, i) => least + ((1 - least) * i) / 100).map((l) => `${X(l)},${Y(full / l)}`).join(" L");
      return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Cost of a thousand requests over load: this machine ${money(full / load)} at ${100 * load} %, ${money(full)} when never idle; the API ${money(api)}` },
        grid, rows,
        svg("text", { x: 4, y: 14, class: "axis", text: "US dollars" }), svg("text", { x: (left + right) / 2, y: height - 8, "text-anchor": "middle", class: "axis", text: "load" }),
        svg("line", { x1: left, x2: right, y1: Y(api), y2: Y(api), class: "api" }), svg("path", { d: `M${curve}`, class: "own" }),
        svg("text", { x: right - 4, y: Y(api) - 7, "text-anchor": "end", class: "api-name", text: "API" }),
        svg("text", { x: right - 4, y: Y(full) - 9, "text-anchor": "end", class: "own-name", text: "this machine" }),
        even <= 1 && even >= least ? svg("circle", { cx: X(even), cy: Y(api), r: 4.5, class: "even" }) : "",
        load >= least ? svg("circle", { cx: X(load), cy: Y(full / load), r: 6.5, class: "here" }) : "");
    });
  }

  /* The round number (1, 2 or 5 times a power of ten) next above. */
  function nice(value) {
    const power = 10 ** Math.floor(LOG(value));
    return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
  }

  /* A box that redraws its picture when its width changes. */
  function inBox(picture) {
    const box = form.h("div", { class: "calc-plot" });
    new ResizeObserver(() => box.replaceChildren(picture(Math.max(280, box.clientWidth)))).observe(box); // calls once at the start, too
    return box;
  }

  window.course.plot = { roofline, overLoad };
})();
