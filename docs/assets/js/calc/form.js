/* What the calculators share: a form built from a list of fields, a place for the result, and the link to share.

   A field: {name, label, initial, help?} and either options [[value, text], …] or min, max, whole?, unit?, stops? (a slider's). */
(function () {
  "use strict";

  const course = (window.course = window.course || {});
  const { state } = course;

  /* An element of HTML. Attributes whose value is null or false are left out; "text" sets the text. */
  function h(tag, attributes = {}, ...children) {
    return fill(document.createElement(tag), attributes, children);
  }

  function svg(tag, attributes = {}, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  }

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === false) continue;
      if (name === "text") node.textContent = value;
      else node.setAttribute(name, value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== ""));
    return node;
  }

  /* The label that every computed number carries. */
  const computed = () => h("span", { class: "calc-label", title: "computed: arithmetic from the inputs and the table values named below", text: "computed" });

  class Field {
    constructor(spec, value, onchange) {
      Object.assign(this, { spec, onchange });
      const id = `calc-${spec.name}`;
      this.error = h("span", { class: "calc-error", id: `${id}-error` });
      const described = [spec.help && `${id}-help`, `${id}-error`].filter(Boolean).join(" ");
      this.input = spec.options
        ? h("select", { id, name: spec.name }, spec.options.map(([option, text]) => h("option", { value: option, text })))
        : h("input", { id, name: spec.name, type: "number", inputmode: "decimal", min: spec.min, max: spec.max, step: "any", "aria-describedby": described });
      const row = h("span", { class: "calc-row" }, this.input, spec.unit ? h("span", { class: "calc-unit", text: spec.unit }) : null);
      this.node = h("div", { class: `calc-field calc-field-${spec.name}` }, h("label", { for: id, text: spec.label }), row);
      if (spec.stops) this.node.append(this.makeSlider());
      if (spec.help) this.node.append(h("span", { class: "calc-help", id: `${id}-help`, text: spec.help }));
      this.node.append(this.error);
      this.set(value);
      this.input.addEventListener(spec.options ? "change" : "input", () => { this.moveSlider(); onchange(); });
    }

    makeSlider() {
      const { stops, label } = this.spec;
      this.slider = h("input", { type: "range", min: 0, max: stops.length - 1, step: 1, "aria-label": `${label}, slider` });
      this.slider.addEventListener("input", () => { this.input.value = stops[this.slider.value]; this.say(); this.onchange(); });
      return this.slider;
    }

    set(value) {
      this.input.value = value;
      this.moveSlider();
    }

    /* To the stop nearest to the number typed. */
    moveSlider() {
      if (!this.slider) return;
      const value = Number(this.input.value), { stops } = this.spec;
      const distances = stops.map((stop) => Math.abs(Math.log((stop || 0.5) / (value || 0.5))));
      this.slider.value = distances.indexOf(Math.min(...distances));
      this.say();
    }

    say() {
      this.slider.setAttribute("aria-valuetext", `${course.units.digits(Number(this.input.value))} ${this.spec.unit || ""}`.trim());
    }

    /* The value, or null after saying at the field what is wrong with it. */
    value() {
      if (this.spec.options) return this.input.value;
      const text = this.input.value.trim(), number = Number(text);
      const fault = text === "" ? "Enter a number." : state.fault(this.spec, number);
      this.error.textContent = fault;
      if (fault) this.input.setAttribute("aria-invalid", "true");
      else this.input.removeAttribute("aria-invalid");
      return fault ? null : number;
    }
  }

  /* Defines a custom element. calculator: {title, fields() -> [field], show(values, output, tools)}; show draws into output and
     returns the verdict, {kind: "good", "bad" or "plain", text}. It may throw a RangeError, whose message is shown. tools: {links, apply(changes)}. */
  function define(tag, calculator) {
    class Calculator extends HTMLElement {
      connectedCallback() {
        if (this.fields) return;
        const links = Object.fromEntries([...this.querySelectorAll("a[data-to]")].map((a) => [a.dataset.to, a.href]));
        const specs = calculator.fields(), { values, problem } = state.read(specs);
        this.fields = specs.map((spec) => new Field(spec, values[spec.name], () => this.changed()));
        this.verdict = h("p", { class: "calc-verdict", role: "status" });
        this.verdictText = "";
        this.output = h("div", { class: "calc-output" });
        this.tools = { links, apply: (changes) => this.apply(changes) };
        const form = h("form", { class: "calc-form", "aria-label": `${calculator.title}: inputs` }, this.fields.map((field) => field.node));
        form.addEventListener("submit", (event) => event.preventDefault());
        const result = h("section", { class: "calc-result", "aria-label": `${calculator.title}: result` }, this.verdict, this.output, this.share());
        this.replaceChildren(problem ? h("p", { class: "calc-problem", role: "alert", text: problem }) : "", form, result);
        this.show();
      }

      share() {
        const button = h("button", { type: "button", text: "Copy a link to this result" }), said = h("span", { role: "status" });
        button.addEventListener("click", async () => {
          const values = this.values();
          const address = location.origin === "null" || location.protocol === "file:" ? location.href.split(/[?#]/)[0] : location.origin + location.pathname;
          try {
            await navigator.clipboard.writeText(address + state.query(values || {}));
            said.textContent = "Copied.";
          } catch {
            said.textContent = "This browser does not let a page copy: take the address from its address bar.";
          }
        });
        return h("p", { class: "calc-share" }, button, said);
      }

      /* Every field is asked, so that each can say what is wrong with it; null if any has something. */
      values() {
        const entries = this.fields.map((field) => [field.spec.name, field.value()]);
        return entries.some(([, value]) => value === null) ? null : Object.fromEntries(entries);
      }

      apply(changes) {
        for (const field of this.fields) if (field.spec.name in changes) field.set(changes[field.spec.name]);
        this.changed();
        this.verdict.scrollIntoView({ block: "nearest" });
      }

      changed() {
        const values = this.show();
        if (values) state.write(values);
      }

      show() {
        const values = this.values();
        if (!values) return this.refuse("One of the inputs is not a number this calculator can use: see beside it.");
        try {
          const { kind, text } = calculator.show(values, this.output, this.tools);
          this.say(kind, text, computed());
          this.output.hidden = false;
          return values;
        } catch (error) {
          if (!(error instanceof RangeError)) throw error;
          this.refuse(error.message);
          return values;
        }
      }

      refuse(message) {
        this.say("bad", message);
        this.output.hidden = true;
        return null;
      }

      say(kind, text, label = "") {
        this.verdict.dataset.kind = kind;
        if (this.verdictText === text) return; // said aloud only when it changes
        this.verdictText = text;
        this.verdict.replaceChildren(h("span", { text }), label);
      }
    }
    customElements.define(tag, Calculator);
  }

  course.form = { h, svg, computed, define };
})();
