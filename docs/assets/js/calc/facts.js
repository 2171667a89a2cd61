/* What the calculators show of the tables: choices, where a value comes from, and numbers with their label. */
(function () {
  "use strict";

  const { tables, form } = window.course;
  const { h, computed } = form;

  const model = (id) => tables.models.find((entry) => entry.id === id);
  const accelerator = (id) => tables.accelerators.find((entry) => entry.id === id);
  const doubtful = (entry) => entry.unverified.filter((name) => name !== "statedContext");
  const mark = (verified) => (verified ? "" : " (unverified)");

  const modelField = () => ({
    name: "model", label: "Model", initial: "llama-3.1-8b",
    options: tables.models.map((m) => [m.id, m.name + mark(!doubtful(m).length)]),
  });

  /* has(entry): whether the table states what is asked of it; facts(entry): the facts that will be used. */
  const acceleratorField = (has, facts, initial = "rtx-4090") => ({
    name: "gpu", label: "GPU", initial,
    options: tables.accelerators.filter(has).map((a) => [a.id, a.name + mark(facts(a).every((fact) => fact.source.verified))]),
  });

  function figures(list) {
    return h("dl", { class: `calc-figures of-${list.length}` }, list.map(([name, value, note]) =>
      h("div", {}, h("dt", {}, name, computed()), h("dd", {}, h("strong", { text: value }), note ? h("span", { class: "calc-help", text: note }) : null))));
  }

  function table(caption, head, rows) {
    const cells = (row) => row.map((cell, i) => (i ? h("td", {}, cell) : h("th", { scope: "row" }, cell)));
    return h("div", { class: "calc-table", tabindex: 0, role: "region", "aria-label": caption },
      h("table", { class: "calc-data" },
        h("caption", {}, `${caption} `, computed()),
        h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col", text })))),
        h("tbody", {}, rows.map((row) => h("tr", {}, cells(row))))));
  }

  /* A folded list: [what, formula with its inputs] for arithmetic, then the values of the tables with their sources. */
  function basis(open, formulas, sources) {
    const arithmetic = h("dl", {}, formulas.map(([what, formula]) => [h("dt", { text: what }), h("dd", {}, h("code", { text: formula }))]));
    const values = h("ul", {}, sources.map(([what, source, note]) => h("li", { class: source.verified ? null : "calc-unverified" },
      `${what}: ${source.title}, ${source.date}${note ? `; ${note}` : ""}`, source.verified ? null : h("strong", { text: " Unverified: nobody has looked this value up." }))));
    return h("details", { open }, h("summary", { text: "How this is computed, and from what" }), arithmetic,
      sources.length ? [h("p", { text: "Values from the tables:" }), values] : h("p", { text: "Every value here is your own input: none comes from a table." }));
  }

  /* A model's shapes; fields that have another source than most count as unverified with it. */
  function modelSources(entry) {
    const verified = entry.source.verified && !doubtful(entry).length;
    return [[`shapes of ${entry.name}`, { ...entry.source, verified }, entry.source.verified ? doubtful(entry).join(", ") : ""]];
  }

  /* Shown above the result, not only in the folded part. */
  function warnings(sources, more = []) {
    const unverified = sources.filter(([, source]) => !source.verified).map(([what]) => what);
    const list = [...(unverified.length ? [`Unverified: ${unverified.join("; ")}. Written from memory: check before you rely on this result.`] : []), ...more];
    return list.map((text) => h("p", { class: "calc-warning", text }));
  }

  window.course.facts = { model, accelerator, modelField, acceleratorField, figures, table, basis, modelSources, warnings };
})();
