/* Every page: whatever scrolls sideways can be reached and scrolled with the keyboard, and only while it does scroll. */
(() => {
  "use strict";

  const NAMES = {
    "md-typeset__scrollwrap": "Table, scrolls sideways", // made by the theme's own script around each table
    "nb-html": "Output, scrolls sideways",
    arithmatex: "Formula, scrolls sideways",
  };

  function check(box, name) {
    if (box.scrollWidth > box.clientWidth + 1) {
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", name);
    } else {
      for (const attribute of ["tabindex", "role", "aria-label"]) box.removeAttribute(attribute);
    }
  }

  addEventListener("load", () => {
    for (const [kind, name] of Object.entries(NAMES)) {
      const observer = new ResizeObserver((entries) => entries.forEach((entry) => check(entry.target, name)));
      for (const box of document.querySelectorAll(`div.${kind}`)) observer.observe(box);
    }
  });
})();
