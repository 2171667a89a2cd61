/* <roofline-calculator>: where prefill and decode stand under a machine's roof, linear layers and attention apart. */
(function () {
  "use strict";

  const { core, form, facts, units, plot } = window.course;
  const { h } = form;

  /* [id, text, bits of the linear weights, the peak their arithmetic runs at]. Attention and the head compute in bf16. */
  const FORMATS = [
    ["bf16", "bf16", 16, "bf16"],
    ["w8", "8-bit weights, bf16 arithmetic", 8, "bf16"],
    ["w4", "int4-g128 weights, bf16 arithmetic", core.WEIGHT_BITS["int4-g128"], "bf16"],
    ["fp8", "fp8 weights and arithmetic", 8, "fp8"],
    ["int8", "int8 weights and arithmetic", 8, "int8"],
  ];
  const LENGTHS = [...Array(11)].flatMap((_, i) => [128 * 2 ** i, 192 * 2 ** i]).slice(0, -1);

  const fields = () => [
    facts.modelField(),
    facts.acceleratorField((a) => peakOf(a, "bf16"), (a) => [a.bandwidth, peakOf(a, "bf16")]),
    { name: "format", label: "Number format", initial: "bf16", options: FORMATS.map(([id, text]) => [id, text]) },
    { name: "kv", label: "KV cache", initial: "16", options: [["16", "16 bit"], ["8", "8 bit"], ["4", "4 bit"]] },
    { name: "batch", label: "Batch of the decode step", unit: "sequences", initial: 8, min: 1, max: 100_000, whole: true, stops: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024] },
    { name: "context", label: "Context", unit: "tokens", initial: 2048, min: 1, max: 10_000_000, whole: true, stops: LENGTHS, help: "Of the prompt to prefill, and in the cache of each sequence that decodes." },
    { name: "efficiency", label: "Reached share of the roof", unit: "%", initial: 100, min: 1, max: 100, help: "100 is the floor that nothing gets under; real kernels reach less." },
  ];

  const peakOf = (gpu, dtype) => gpu.peaks.find((p) => p.dtype === dtype && p.accumulate === (dtype === "int8" ? "int32" : "fp32"));

  /* {linear, other}: the ceilings of the linear layers and of everything else. Throws RangeError where the table states no peak. */
  function machines(gpu, format) {
    const [, , , dtype] = FORMATS.find(([id]) => id === format);
    const peak = peakOf(gpu, dtype);
    if (!peak) throw new RangeError(`The table states no ${dtype} peak for ${gpu.name}: choose another number format, or another GPU.`);
    const ceilings = (p) => ({ peakFlops: p.value, bandwidth: gpu.bandwidth.value });
    return { linear: ceilings(peak), other: ceilings(peakOf(gpu, "bf16")) };
  }

  /* One phase: {seconds, flops, bytes, parts: {linear, attention, rest}}, each part with its own. */
  function phase(model, step, roofs, efficiency) {
    const groups = { linear: [], attention: [], rest: [] };
    for (const operator of core.operators(model, step)) {
      const kind = operator.name.endsWith("_proj") ? "linear" : operator.name === "attention" ? "attention" : "rest";
      groups[kind].push(operator);
    }
    const parts = Object.fromEntries(Object.entries(groups).map(([kind, work]) => {
      const machine = kind === "linear" ? roofs.linear : roofs.other, { flops, bytes } = core.total(work);
      const seconds = core.totalSeconds(work, machine, { efficiency });
      return [kind, { flops, bytes, seconds, intensity: flops / bytes, bound: core.boundOf(flops, bytes, machine.peakFlops, machine.bandwidth) }];
    }));
    const all = (key) => Object.values(parts).reduce((sum, part) => sum + part[key], 0);
    return { flops: all("flops"), bytes: all("bytes"), seconds: all("seconds"), parts };
  }

  /* All that is shown, as numbers; pure. */
  function answer(values) {
    const model = facts.model(values.model), roofs = machines(facts.accelerator(values.gpu), values.format);
    const [, , weightBits] = FORMATS.find(([id]) => id === values.format);
    const bits = { weightBits, kvBits: Number(values.kv) }, efficiency = values.efficiency / 100;
    const prefill = phase(model, core.Step(1, values.context, 0, bits), roofs, efficiency);
    const decode = phase(model, core.Step(values.batch, 1, values.context, bits), roofs, efficiency);
    return {
      prefill, decode,
      prefillRate: values.context / prefill.seconds, decodeRate: values.batch / decode.seconds,
      ridge: core.ridgePoint(roofs.linear.peakFlops, roofs.linear.bandwidth),
      roofs,
    };
  }

  /* The smallest batch whose linear layers are bound by computing; null if none up to 2^20 is. */
  function ridgeBatch(values) {
    const bound = (batch) => answer({ ...values, batch }).decode.parts.linear.bound === "compute";
    let low = 0, high = 2 ** 20;
    if (!bound(high)) return null;
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (bound(middle)) high = middle;
      else low = middle;
    }
    return high;
  }

  const NAMES = { linear: "linears", attention: "attention", rest: "the rest" };

  function rows(name, { parts, ...all }) {
    const row = (what, part, bound) => [`${name}, ${what}`, units.flops(part.flops), units.bytes(part.bytes), units.digits(part.flops / part.bytes), bound, units.seconds(part.seconds), units.percent(part.seconds / all.seconds)];
    return [...Object.entries(parts).map(([kind, part]) => row(NAMES[kind], part, part.bound)), row("all", all, "")];
  }

  function points({ prefill, decode }) {
    return [["prefill", prefill], ["decode", decode]].flatMap(([name, { parts }]) =>
      ["linear", "attention"].map((kind) => ({ kind, phase: name, x: parts[kind].intensity, y: parts[kind].flops / parts[kind].seconds, label: `${name}, ${kind === "linear" ? "linears" : kind}` })));
  }

  function show(values, output, tools) {
    const now = answer(values), model = facts.model(values.model), gpu = facts.accelerator(values.gpu);
    const [, , bits, dtype] = FORMATS.find(([id]) => id === values.format);
    const peaks = [...new Set([dtype, "bf16"])].map((d) => [d, peakOf(gpu, d)]);
    const sources = [...facts.modelSources(model), [`bandwidth of ${gpu.name}`, gpu.bandwidth.source, gpu.bandwidth.note], ...peaks.map(([d, p]) => [`${d} peak of ${gpu.name}`, p.source, p.note])];
    const edge = ridgeBatch(values), { decode, prefill } = now;
    const roofs = peaks.map(([d, p]) => ({ name: `${d} ${units.digits(p.value / 1e12)} ${d === "int8" ? "TOP/s" : "TFLOP/s"}`, peak: p.value, bandwidth: gpu.bandwidth.value }));
    const folded = output.querySelector("details");
    const args = `${values.model}, Step(`;
    const kvWord = Number(values.kv) !== 16 ? `, kv_bits=${values.kv}` : "";
    const long = values.context > model.statedContext ? [`${model.name} was made for ${units.count(model.statedContext)} tokens; ${units.count(values.context)} is more.`] : [];
    const next = [];
    const weights = { bf16: "bf16", w8: "int8", w4: "int4-g128", fp8: "fp8", int8: "int8" }[values.format];
    if (tools.links.memory) next.push(h("a", { href: tools.links.memory + query({ model: values.model, gpu: values.gpu, weights, kv: values.kv, context: values.context, users: values.batch }), text: "Does this batch fit in memory?" }));
    if (tools.links.cost) next.push(h("a", { href: tools.links.cost + query({ prefill: Math.round(now.prefillRate), decode: Math.round(now.decodeRate), input: values.context }), text: "What do tokens cost at these rates?" }));
    output.replaceChildren(
      ...facts.warnings(sources, long),
      plot.roofline(roofs, points(now)),
      facts.figures([
        ["Decode step", units.seconds(decode.seconds), `${units.count(values.batch)} × 1 token`],
        ["Decode, all sequences", units.rate(now.decodeRate), `${units.rate(now.decodeRate / values.batch)} for each`],
        ["Prefill of one prompt", units.seconds(prefill.seconds), units.rate(now.prefillRate)],
        ["Ridge", `${units.digits(now.ridge)} FLOP/B`, edge ? `linear layers reach it at a batch of ${units.count(edge)}` : "no batch brings the linear layers there"],
      ]),
      next.length ? h("p", { class: "calc-next" }, next) : "",
      facts.table(`One step on ${gpu.name}`, ["Phase", "FLOPs", "Bytes", "FLOP/B", "Bound by", "Time", "Share"], [...rows("Decode", decode), ...rows("Prefill", prefill)]),
      facts.basis(Boolean(folded && folded.open), [
        ["Decode", `operators(${args}${values.batch}, 1, ${values.context}, weight_bits=${bits}${kvWord}))`],
        ["Prefill", `operators(${args}1, ${values.context}, weight_bits=${bits}${kvWord}))`],
        ["Time", `total_seconds(operators, ceilings, efficiency=${values.efficiency / 100}); linear layers at the ${dtype} peak, the rest at that of bf16`],
        ["A point", "FLOPs / bytes across, FLOPs / time up; each operator at its own roof, one after another"],
      ], sources),
    );
    const slow = (part) => (part.bound === "memory" ? "wait for memory" : "are bound by computing");
    const share = decode.parts.attention.seconds / decode.seconds;
    const verdict = `Decode’s linear layers ${slow(decode.parts.linear)}; attention takes ${units.percent(Number(share.toFixed(3)))} of the step. Prefill’s linear layers ${slow(prefill.parts.linear)}.`;
    return { kind: "plain", text: verdict };
  }

  const query = (values) => `?${new URLSearchParams(values)}`;

  (window.course.answers = window.course.answers || {}).roofline = answer;
  form.define("roofline-calculator", { title: "Roofline", fields, show });
})();
