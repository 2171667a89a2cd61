/* <cost-calculator>: US dollars for a million tokens on a machine paid by the hour, beside an API's price for the same requests. */
(function () {
  "use strict";

  const { core, form, facts, units, plot } = window.course;
  const { h } = form;

  const number = (name, label, unit, initial, max, more = {}) => ({ name, label, unit, initial, min: 0, max, ...more });
  const fields = () => [
    number("price", "Price of the machine", "$/hour", 2.5, 100_000, { min: 0.001 }),
    number("load", "Load", "%", 60, 100, { min: 1, stops: [5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100], help: "Share of the paid hours in which it works." }),
    number("prefill", "Prefill rate", "tokens/s", 20000, 1e9, { min: 0.01, help: "If it did nothing but read prompts." }),
    number("decode", "Decode rate", "tokens/s", 2000, 1e9, { min: 0.01, help: "All requests together, if it did nothing but write." }),
    number("input", "Prompt", "tokens", 2000, 1e7, { whole: true, min: 1 }),
    number("output", "Answer", "tokens", 300, 1e7, { whole: true, min: 1, help: "Reasoning included." }),
    number("cached", "Cached share of the prompt", "%", 0, 100, { stops: [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100], help: "Found in a prefix cache, so not computed again." }),
    number("inputprice", "API: input", "$/M tokens", 0.5, 1e5),
    number("cachedprice", "API: cached input", "$/M tokens", 0.05, 1e5),
    number("outputprice", "API: output", "$/M tokens", 1.5, 1e5, { help: "The starting prices are examples, nobody’s quotation." }),
  ];

  /* All that is shown, as numbers; pure. Prices in US dollars a million tokens, at the load given. */
  function answer(v) {
    const load = v.load / 100, cached = v.cached / 100;
    const input = core.costPerMillion(v.price, v.prefill) / load, output = core.costPerMillion(v.price, v.decode) / load;
    const own = core.requestCost(v.input, v.input * cached, v.output, { inputPrice: input, cachedPrice: 0, outputPrice: output });
    const api = core.requestCost(v.input, v.input * cached, v.output, { inputPrice: v.inputprice, cachedPrice: v.cachedprice, outputPrice: v.outputprice });
    const seconds = (v.input * (1 - cached)) / v.prefill + v.output / v.decode;
    return { input, inputAverage: input * (1 - cached), output, own, full: own * load, api, seconds, perHour: (3600 * load) / seconds, breakEven: api ? (own * load) / api : Infinity };
  }

  function show(values, output) {
    const now = answer(values), thousand = 1000;
    const folded = output.querySelector("details");
    const cachedNote = values.cached ? `${units.digits(values.cached)} % of them found in the cache` : "";
    output.replaceChildren(
      facts.figures([
        ["A million input tokens", units.dollars(now.inputAverage), cachedNote || "none of them cached"],
        ["A million output tokens", units.dollars(now.output), `${units.digits(now.output / now.input)} times an uncached input token`],
        ["A thousand requests here", units.dollars(thousand * now.own), `${units.count(values.input)} tokens in, ${units.count(values.output)} out`],
        ["A thousand at the API", units.dollars(thousand * now.api), "the same requests, the same share cached"],
        ["Requests per hour", units.digits(now.perHour), "at this load"],
        ["Time of one request", units.seconds(now.seconds), "of the machine, alone"],
      ]),
      h("h2", {}, "A thousand requests, by load ", form.computed()),
      plot.overLoad({ full: thousand * now.full, api: thousand * now.api, load: values.load / 100, even: now.breakEven }),
      facts.basis(Boolean(folded && folded.open), [
        ["Input token, not cached", `cost_per_million(${values.price}, ${values.prefill}) / ${values.load / 100} = ${units.dollars(now.input)}`],
        ["Output token", `cost_per_million(${values.price}, ${values.decode}) / ${values.load / 100} = ${units.dollars(now.output)}`],
        ["Request here", `request_cost(${values.input}, ${units.digits((values.input * values.cached) / 100)}, ${values.output}, input_price=…, cached_price=0, output_price=…) = $${Number(now.own.toPrecision(4))}`],
        ["Request at the API", `request_cost(…, input_price=${values.inputprice}, cached_price=${values.cachedprice}, output_price=${values.outputprice}) = $${Number(now.api.toPrecision(4))}`],
        ["Load at which both cost the same", `full / api = ${Number.isFinite(now.breakEven) ? units.percent(now.breakEven) : "none, the API is free"}`],
      ], []),
    );
    const even = now.breakEven;
    const text = even > 1
      ? "The API is cheaper at any load: even a machine that is never idle costs more for these requests."
      : values.load / 100 > even
        ? `This machine is cheaper at ${units.digits(values.load)} % load. Below ${units.percent(even)} load the API would be.`
        : `The API is cheaper at ${units.digits(values.load)} % load. Above ${units.percent(even)} load this machine would be.`;
    return { kind: "plain", text };
  }

  (window.course.answers = window.course.answers || {}).cost = answer;
  form.define("cost-calculator", { title: "Cost", fields, show });
})();
