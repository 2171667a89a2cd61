// On a narrow screen the page shows one half at a time; this is the switch.

import { $ } from "./dom.js";

function show(view) {
  document.body.dataset.view = view;
  for (const name of ["chat", "watch"]) $(`show-${name}`).setAttribute("aria-pressed", String(name === view));
}

for (const name of ["chat", "watch"]) $(`show-${name}`).addEventListener("click", () => show(name));
show("chat");
