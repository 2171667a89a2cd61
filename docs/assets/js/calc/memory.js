/* <memory-calculator>: does it fit, for how many, and what would change that. */
(function () {
  "use strict";

  const { core, form, facts, units, tables } = window.course;
  const { h } = form;
  const BLOCK = 16; // tokens in a block of the cache

  const WEIGHTS = [
    ["fp32", "fp32, 32 bit"], ["bf16", "bf16 or fp16, 16 bit"], ["fp8", "fp8, 8 bit"], ["int8", "int8, 8 bit"],
    ["int4-g128", "int4 in groups of 128, 4.16 bit"], ["int4-g64", "int4 in groups of 64, 4.31 bit"], ["int4-g32", "int4 in groups of 32, 4.63 bit"],
  ];
  const KV = [["16", "bf16 or fp16, 16 bit"], ["8", "fp8 or int8, 8 bit"], ["4", "4 bit"]];

  const fields = () => [
    facts.modelField(),
    facts.acceleratorField((a) => a.memory, (a) => [a.memory]),
    { name: "weights", label: "Weights", initial: "bf16", options: WEIGHTS },
    { name: "kv", label: "KV cache", initial: "16", options: KV },
    { name: "context", label: "Tokens per request", unit: "tokens", initial: 8192, min: 1, max: 10_000_000, whole: true, stops: [...Array(14)].map((_, i) => 128 * 2 ** i), help: "Prompt and answer together, at their longest." },
    { name: "users", label: "Requests at once", unit: "requests", initial: 4, min: 1, max: 100_000, whole: true, stops: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024] },
    { name: "share", label: "Share the engine may use", unit: "%", initial: 90, min: 1, max: 100, help: "vLLM’s GPU memory utilization." },
    { name: "overhead", label: "Everything else", unit: "GB", initial: 1.5, min: 0, max: 1000, help: "Activations, CUDA context, graphs. 1.5 is an assumption: put in what your engine logs." },
  ];

  /* All that is shown, as numbers; pure. Bytes are per device, lengths in tokens. */
  function answer(values) {
    const model = facts.model(values.model), memory = facts.accelerator(values.gpu).memory.value;
    const weights = core.weightBytes(model, values.weights), overhead = values.overhead * 1e9, share = values.share / 100;
    const perToken = core.kvBytes(model, values.context, values.kv / 8) / values.context;
    const room = core.kvTokenBudget(memory, weights, perToken, { overheadBytes: overhead, gpuMemoryUtilization: share });
    const requests = core.maxRequests(room, values.context, BLOCK);
    const kv = values.users * Math.ceil(values.context / BLOCK) * BLOCK * perToken;
    const reserved = memory * (1 - share);
    return { memory, weights, overhead, reserved, perToken, room, requests, kv, free: memory - reserved - weights - overhead - kv, fits: values.users <= requests };
  }

  /* The most tokens per request at which all requests fit, in whole blocks; 0 if there is none up to the model's own limit. */
  function longest(values) {
    let low = 0, high = Math.floor(facts.model(values.model).statedContext / BLOCK) + 1;
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (answer({ ...values, context: middle * BLOCK }).fits) low = middle;
      else high = middle;
    }
    return low * BLOCK;
  }

  /* Single changes that each would do: [what, changes]. Where it fits already: those that make room for more requests. */
  function changes(values, now) {
    const found = [], room = (change) => answer({ ...values, ...change }).requests;
    const better = (n) => (now.fits ? n > now.requests : n >= values.users);
    const many = (n) => `room for ${units.count(n)} ${n === 1 ? "request" : "requests"}`;
    if (!now.fits && now.requests) found.push([`Fewer requests: ${units.count(now.requests)}`, { users: now.requests }]);
    const context = now.fits ? 0 : longest(values);
    if (context) found.push([`Shorter requests: ${units.count(context)} tokens`, { context }]);
    const kv = KV.map(([bits]) => bits).find((bits) => Number(bits) < values.kv && better(room({ kv: bits })));
    if (kv) found.push([`KV cache in ${kv} bit: ${many(room({ kv }))}`, { kv }]);
    const bits = core.WEIGHT_BITS[values.weights];
    const weights = ["bf16", "fp8", "int4-g128", "int4-g64"].find((dtype) => core.WEIGHT_BITS[dtype] < bits && better(room({ weights: dtype })));
    if (weights) found.push([`Weights in ${weights}: ${many(room({ weights }))}`, { weights }]);
    const maker = ({ name }) => name.split(" ")[0], foreign = (a) => Number(maker(a) !== maker(facts.accelerator(values.gpu)));
    const larger = tables.accelerators.filter((a) => a.memory && a.memory.value > now.memory && better(room({ gpu: a.id })))
      .sort((a, b) => foreign(a) - foreign(b) || a.memory.value - b.memory.value)[0];
    if (larger) found.push([`${larger.name}, ${units.bytes(larger.memory.value)}: ${many(room({ gpu: larger.id }))}`, { gpu: larger.id }]);
    return found;
  }

  /* usable: what the engine may take; marked where the parts need more. */
  function bar(parts, usable) {
    const total = parts.reduce((all, [, , bytes]) => all + bytes, 0), limit = (100 * usable) / total;
    const text = parts.map(([, name, bytes]) => `${name} ${units.bytes(bytes)}`).join(", ");
    const over = parts.every(([kind]) => kind !== "free");
    return h("div", { class: over ? "calc-bar is-over" : "calc-bar", role: "img", "aria-label": `${text}; the engine may use ${units.bytes(usable)}` },
      h("div", { class: "calc-bar-parts" }, parts.map(([kind, , bytes]) => h("span", { class: `is-${kind}`, style: `width:${(100 * bytes) / total}%` }))),
      over ? h("div", { class: limit < 35 ? "calc-bar-limit is-early" : "calc-bar-limit", style: `left:${limit}%` }, h("span", { text: `${units.bytes(usable)} usable` })) : null);
  }

  function show(values, output, tools) {
    const now = answer(values), model = facts.model(values.model), gpu = facts.accelerator(values.gpu);
    const parts = [
      ["weights", "Weights", now.weights], ["overhead", "Everything else", now.overhead], ["kv", "KV cache", now.kv],
      ...(now.free >= 0 ? [["free", "Free", now.free], ["reserved", "Kept from the engine", now.reserved]] : []),
    ];
    const rows = parts.map(([kind, name, bytes]) => [h("span", {}, h("i", { class: `calc-swatch is-${kind}` }), name), units.bytes(bytes), units.percent(bytes / now.memory)]);
    const sources = [...facts.modelSources(model), [`memory of ${gpu.name}`, gpu.memory.source, gpu.memory.note]];
    const ideas = changes(values, now);
    const buttons = ideas.map(([text, change]) => {
      const button = h("button", { type: "button", text });
      button.addEventListener("click", () => tools.apply(change));
      return h("li", {}, button);
    });
    const long = values.context > model.statedContext ? [`${model.name} was made for ${units.count(model.statedContext)} tokens${model.unverified.includes("statedContext") ? " (unverified)" : ""}; ${units.count(values.context)} is more.`] : [];
    const call = `${values.model}, `;
    const folded = output.querySelector("details");
    output.replaceChildren(
      ...facts.warnings(sources, long),
      bar(parts, now.memory - now.reserved),
      facts.table(`Of ${units.bytes(now.memory)} on one ${gpu.name}`, ["Part", "Bytes", "Share"], rows),
      facts.figures([
        ["KV cache per token", units.bytes(now.perToken), model.slidingWindow ? `average over ${units.count(values.context)} tokens: some layers keep a window of ${model.slidingWindow}` : ""],
        ["Room for", `${units.count(now.room)} tokens`, "all requests together"],
        ["Requests at once, at most", units.count(now.requests), `of ${units.count(values.context)} tokens each`],
      ]),
      ideas.length ? h("div", { class: "calc-ideas" }, h("h2", { text: now.fits ? "For more requests" : "What would make it fit" }), h("ul", {}, buttons)) : now.fits ? "" : h("p", { class: "calc-warning", text: "No single change makes it fit on one device of the table: combine several, or split the model over several devices (series C7)." }),
      facts.basis(Boolean(folded && folded.open), [
        ["Weights", `weight_bytes(${call}"${values.weights}") = ${units.count(now.weights)} B`],
        ["KV cache per token", `kv_bytes(${call}${values.context}, ${values.kv / 8}) / ${values.context} = ${units.digits(now.perToken)} B`],
        ["Room", `kv_token_budget(${units.count(now.memory)}, weights, per_token, overhead_bytes=${values.overhead}e9, gpu_memory_utilization=${values.share / 100}) = ${units.count(now.room)} tokens`],
        ["Requests", `max_requests(${now.room}, ${values.context}, block_size=${BLOCK}) = ${now.requests}`],
      ], sources),
    );
    const limit = now.requests ? `room for ${units.count(now.requests)}, not ${units.count(values.users)}` : now.room ? "not even one request of this length does" : now.weights > now.memory - now.reserved ? "the weights alone are too large" : "the weights leave no room for a cache";
    return { kind: now.fits ? "good" : "bad", text: now.fits ? `Fits: ${units.count(values.users)} of at most ${units.count(now.requests)} ${now.requests === 1 ? "request" : "requests"}.` : `Does not fit: ${limit}.` };
  }

  (window.course.answers = window.course.answers || {}).memory = answer;
  form.define("memory-calculator", { title: "Memory", fields, show });
})();
