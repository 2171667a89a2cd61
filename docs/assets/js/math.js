/* Only on pages whose formulas were not drawn when the site was built (tools/website/formulas.py): KaTeX turns what arithmatex left
   between \( \) and \[ \] into mathematics. It is a third of all that such a page loads, so it comes when the first formula is a
   screen away, or when the page is printed. */
(() => {
  "use strict";

  const folder = new URL("../vendor/katex/", document.currentScript.src);
  const formulas = document.querySelectorAll(".arithmatex");
  const near = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && load(), { rootMargin: "100%" });

  function load() {
    near.disconnect();
    removeEventListener("beforeprint", load);
    const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL("katex.min.css", folder) });
    const script = Object.assign(document.createElement("script"), { src: new URL("katex.min.js", folder), onload: render });
    document.head.append(style, script);
  }

  function render() {
    for (const element of formulas) {
      const text = element.textContent.trim();
      const displayMode = text.startsWith("\\[");
      katex.render(text.slice(2, -2), element, { displayMode, throwOnError: false, strict: "ignore" });
    }
  }

  addEventListener("beforeprint", load);
  for (const formula of formulas) near.observe(formula);
})();
