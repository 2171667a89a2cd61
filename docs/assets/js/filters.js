/* The list of all modules, shortened by path, level and series. What is chosen stands in the address: course/#role=ml&level=user. */
(() => {
  "use strict";

  const form = document.querySelector("form.filters");
  if (!form) return;
  const said = form.querySelector("output");
  const reset = form.querySelector("button");
  const names = [...new Set([...form.querySelectorAll("input")].map((input) => input.name))];
  const items = [...document.querySelectorAll("ol.modules > li")];
  form.hidden = false;

  const chosen = () => Object.fromEntries(names.map((name) => [name, form.elements[name].value]));

  const fits = (item, { role, level, series }) =>
    (!role || item.dataset.roles.split(" ").includes(role)) &&
    (!level || item.dataset.level.replace(" ", "-") === level) &&
    (!series || item.dataset.series === series);

  function apply() {
    const choice = chosen();
    let minutes = 0;
    for (const item of items) {
      item.hidden = !fits(item, choice);
      if (!item.hidden) minutes += Number(item.dataset.minutes);
    }
    for (const list of document.querySelectorAll("ol.modules")) showGroup(list, [...list.children].some((item) => !item.hidden));
    const count = items.filter((item) => !item.hidden).length;
    const time = minutes < 60 ? `${minutes} min` : `about ${Math.round(minutes / 60)} h`;
    const all = count === items.length;
    said.textContent = count ? `${all ? "All" : ""} ${count} modules, ${time} of reading.`.trim() : "No module fits all of this.";
    if (count === 1) said.textContent = `1 module, ${time} of reading.`;
    reset.hidden = all;
  }

  /** A list with its heading, and the line between them. */
  function showGroup(list, visible) {
    for (let element = list; element; element = element.previousElementSibling) {
      element.hidden = !visible;
      if (element.tagName === "H2") return;
    }
  }

  function fromAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    for (const name of names) {
      const input = form.querySelector(`input[name="${name}"][value="${CSS.escape(asked.get(name) ?? "")}"]`);
      (input ?? form.querySelector(`input[name="${name}"][value=""]`)).checked = true;
    }
    apply();
  }

  function toAddress() {
    const asked = new URLSearchParams(Object.entries(chosen()).filter(([, value]) => value));
    history.replaceState(null, "", asked.size ? `#${asked}` : location.pathname + location.search);
    apply();
  }

  form.addEventListener("change", toAddress);
  reset.addEventListener("click", () => {
    form.reset();
    toAddress();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", () => {
    if (!document.getElementById(location.hash.slice(1))) fromAddress(); // else a link to a heading
  });
  fromAddress();
})();
