/* A calculator's inputs in the page's address (?model=…&gpu=…), so that a result can be shared. Other parameters stay as they are. */
(function () {
  "use strict";

  const course = (window.course = window.course || {});

  function read(fields) {
    const given = new URLSearchParams(location.search), values = {}, problems = [];
    for (const field of fields) {
      values[field.name] = field.initial;
      const text = given.get(field.name);
      if (text === null) continue;
      const value = field.options ? text : Number(text);
      if (field.options ? field.options.some(([id]) => id === text) : text.trim() !== "" && !fault(field, value)) values[field.name] = value;
      else problems.push(`${field.label.toLowerCase()} “${text.slice(0, 40)}”`);
    }
    const problem = problems.length ? `The link asks for ${problems.join(", ")}, which this page does not have. It shows its default instead.` : "";
    return { values, problem };
  }

  /* What is wrong with a number, in words; "" if nothing. */
  function fault(field, value) {
    const { count, digits } = course.units;
    if (!Number.isFinite(value)) return "Enter a number.";
    if (field.whole && !Number.isInteger(value)) return "Enter a whole number.";
    if (value < field.min || value > field.max) return `Enter a number from ${digits(field.min)} to ${field.whole ? count(field.max) : digits(field.max)}.`;
    return "";
  }

  function query(values) {
    const all = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(values)) all.set(name, value);
    return `?${all}`;
  }

  let timer;

  /* Soon rather than at once: a browser refuses a hundred changes in half a minute, and a slider makes more. */
  function write(values) {
    clearTimeout(timer);
    timer = setTimeout(() => history.replaceState(history.state, "", query(values) + location.hash), 150);
  }

  course.state = { read, write, query, fault };
})();
