/* Only on pages with diagrams: mermaid is several times as large as all else on such a page, so it comes when the first diagram is
   a screen away, or when the page is printed. Material draws with whatever is called `mermaid`; until then it is this. */
(() => {
  "use strict";

  const address = new URL("../vendor/mermaid.min.js", document.currentScript.src);
  let settings;

  const loaded = new Promise((resolve, reject) => {
    const near = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && load(), { rootMargin: "100%" });

    function load() {
      near.disconnect();
      removeEventListener("beforeprint", load);
      const script = document.createElement("script");
      Object.assign(script, { src: address, onload: () => resolve(window.mermaid), onerror: reject });
      document.head.append(script);
    }

    addEventListener("beforeprint", load);
    for (const diagram of document.querySelectorAll("pre.mermaid")) near.observe(diagram);
  }).then((mermaid) => {
    mermaid.initialize(settings);
    return mermaid;
  });

  window.mermaid = {
    initialize: (given) => (settings = given),
    render: async (id, text) => (await loaded).render(id, text),
  };
})();
