"use strict";

// Left and right go to the newer and the older neighbour, unless somebody is typing, selecting or scrolling cards.
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.defaultPrevented) return;
  if (event.target instanceof Element && event.target.closest("input, select, textarea, .cards, .scroll")) return;
  const direction = { ArrowLeft: "prev", k: "prev", ArrowRight: "next", j: "next" }[event.key];
  const link = direction && document.querySelector(`a[rel="${direction}"]`);
  if (link) link.click();
});

// A table of class "sortable" is sorted by the column whose head is pressed: once up, again down. Cells may say by what
// in data-value; numbers come before words, and what is empty stays last. Without this script it has the server's order.
const readCell = (row, column) => {
  const cell = row.cells[column];
  const text = (cell.dataset.value ?? cell.textContent).trim();
  const number = Number(text.replace(/[,%$ ]/g, "").replace("−", "-"));
  if (text === "" || text === "–") return [2, 0, ""];
  return Number.isNaN(number) ? [1, 0, text] : [0, number, ""];
};

const sortTable = (table, column, head) => {
  const rising = head.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", rising ? "ascending" : "descending");
  const keyed = [...table.tBodies[0].rows].map((row) => [readCell(row, column), row]);
  const turn = rising ? 1 : -1;
  keyed.sort(([a], [b]) => (a[0] === 2 || b[0] === 2 ? a[0] - b[0]
    : turn * (a[0] - b[0] || a[1] - b[1] || a[2].localeCompare(b[2]))));
  table.tBodies[0].append(...keyed.map(([, row]) => row));
};

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortTable(table, column, head));
    head.append(button);
  });
}

// A link into something that is folded opens it.
const openTarget = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  for (let at = target; at; at = at.parentElement) if (at instanceof HTMLDetailsElement) at.open = true;
  if (target) target.scrollIntoView();
};
window.addEventListener("hashchange", openTarget);
openTarget();
