/* Tables that can be ordered: each heading becomes a button. Values come from the cells' data-sort; empty cells stay last. */
(() => {
  "use strict";

  function compare(a, b) {
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  }

  /** The first column starts from A, numbers from the largest; a second press turns the order round. */
  function sort(table, heading) {
    const now = heading.getAttribute("aria-sort");
    const rising = now === "none" ? heading.cellIndex === 0 : now === "descending";
    const key = (row) => row.cells[heading.cellIndex].dataset.sort ?? "";
    const order = (a, b) => (key(a) === "" || key(b) === "" ? compare(key(a), key(b)) : (rising ? 1 : -1) * compare(key(a), key(b)));
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(order));
    for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    for (const heading of table.tHead.rows[0].cells) {
      if (!heading.textContent.trim()) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...heading.childNodes);
      heading.append(button);
      heading.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sort(table, heading));
    }
  }
})();
