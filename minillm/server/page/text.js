// Text of an answer into the page: paragraphs as they stand, ``` blocks as <pre>. Only textContent, never innerHTML.

function splitCode(text) {
  const segments = [];
  let tag = "p";
  let lines = [];
  const flush = () => {
    const body = tag === "p" ? lines.join("\n").trim() : lines.join("\n");
    if (body) segments.push({ tag, body });
    lines = [];
  };
  for (const line of text.split("\n")) {
    if (line.trimStart().startsWith("```")) {
      flush();
      tag = tag === "p" ? "pre" : "p";
    } else {
      lines.push(line);
    }
  }
  flush();
  return segments;
}

export function showText(container, text) {
  const segments = splitCode(text);
  segments.forEach(({ tag, body }, i) => {
    let node = container.children[i];
    if (!node || node.localName !== tag) {
      const fresh = document.createElement(tag);
      if (tag === "pre") fresh.tabIndex = 0; // so that the keyboard can scroll it
      if (node) node.replaceWith(fresh);
      else container.append(fresh);
      node = fresh;
    }
    if (node.textContent !== body) node.textContent = body; // finished segments stay untouched, and selectable
  });
  while (container.children.length > segments.length) container.lastChild.remove();
}
