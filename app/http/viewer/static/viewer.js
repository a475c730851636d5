// Keys work unless somebody is typing, chooses from a list or has a dialog open; arrows not while something scrolls.
const CONTROLS = "input:not([type=radio]):not([type=checkbox]), select, textarea, dialog";
const press = (link) => { if (link) link.click(); return Boolean(link); };

// What there is on this page to step through: groups of a filter, one after the other, or rows of a table or list.
const stepTo = (by) => {
  if (press(document.querySelector(`.trail a[rel="${by < 0 ? "prev" : "next"}"]`))) return true;
  const rows = [...document.querySelectorAll("main tbody tr, main .newest li")].map((row) => row.querySelector("a[href]"));
  const links = rows.filter((link) => link && link.checkVisibility());
  if (!links.length) return false;
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? (by < 0 ? links.length - 1 : 0) : Math.min(Math.max(at + by, 0), links.length - 1)];
  next.focus({ focusVisible: true });
  return true;
};

const findFilter = () => {
  const field = document.querySelector("main form.filters input:not([type=hidden]):not([type=checkbox])");
  if (field) { field.focus(); field.select(); }
  return Boolean(field);
};

const HELP = [
  ["/", "go to the filter"], ["j", "the next group or row"], ["k", "the previous one"],
  ["← →", "the newer or the older group, or page"], ["Enter", "open what has the focus"],
  ["Esc", "leave a field, or close this"], ["?", "these keys"],
];

const buildHelp = () => {
  const dialog = document.createElement("dialog");
  dialog.className = "keys";
  dialog.setAttribute("aria-labelledby", "keys-title");
  const title = document.createElement("h2");
  title.id = "keys-title";
  title.textContent = "Keys";
  const list = document.createElement("dl");
  const own = [...document.querySelectorAll("#page-keys > div")].map((row) => [...row.children].map((one) => one.textContent));
  for (const [key, said] of [...own, ...HELP]) {
    const row = list.appendChild(document.createElement("div"));
    row.appendChild(document.createElement("dt")).appendChild(document.createElement("kbd")).textContent = key;
    row.appendChild(document.createElement("dd")).textContent = said;
  }
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.append(title, list, close);
  return document.body.appendChild(dialog);
};
const showHelp = () => {
  const dialog = document.querySelector("dialog.keys") ?? buildHelp();
  if (!dialog.open) dialog.showModal();
  return true;
};
const pages = document.querySelector(".menu nav > :last-child");
if (pages) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "help";
  button.textContent = "?";
  button.setAttribute("aria-label", "Shortcuts");
  button.setAttribute("aria-keyshortcuts", "?");
  button.addEventListener("click", showHelp);
  pages.append(button);
}

// A form of class "by-key": up and down go through its fieldsets, a digit or sign picks in the one that is current.
const byKey = document.querySelector("form.by-key");
const fields = byKey ? [...byKey.querySelectorAll("fieldset")].filter((one) => one.querySelector("[data-key]")) : [];
let current = 0;
const goToField = (place) => {
  current = Math.min(Math.max(place, 0), fields.length - 1);
  for (let at = fields[current]; at; at = at.parentElement) if (at instanceof HTMLDetailsElement) at.open = true;
  fields.forEach((one, at) => one.classList.toggle("current", at === current));
  const chosen = fields[current].querySelector("input:checked") ?? fields[current].querySelector("input");
  chosen.focus({ preventScroll: true });
  fields[current].scrollIntoView({ block: "nearest" });
};
const pick = (key) => {
  const input = fields.length && fields[current].querySelector(`input[data-key="${CSS.escape(key)}"]`);
  if (input) { input.click(); goToField(input.checked ? current + 1 : current); }
  return Boolean(input);
};
const pressInForm = (event) => {
  if (!fields.length) return false;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") goToField(current + (event.key === "ArrowDown" ? 1 : -1));
  else if (event.key === "Enter" && !(event.target instanceof HTMLButtonElement) && !event.target.closest("a, summary")) {
    byKey.requestSubmit(byKey.querySelector("button[value=send]"));
  } else if (!pick(event.key)) return press(byKey.querySelector(`button[data-key="${CSS.escape(event.key)}"]`));
  return true;
};
if (fields.length) {
  fields.forEach((one, at) => one.addEventListener("focusin", () => {
    current = at;
    fields.forEach((other) => other.classList.toggle("current", other === one));
  }));
  goToField(0);
  window.scrollTo(0, 0);
}

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
  const target = event.target instanceof Element ? event.target : document.body;
  if (event.key === "Escape" && target.matches("input, select, textarea")) target.blur();
  if (target.closest(CONTROLS) || (event.key.startsWith("Arrow") && target.closest(".cards, .scroll"))) return;
  const keys = {
    "/": findFilter, "?": showHelp, j: () => stepTo(1), k: () => stepTo(-1),
    ArrowLeft: () => press(document.querySelector('a[rel="prev"]')),
    ArrowRight: () => press(document.querySelector('a[rel="next"]')),
  };
  const act = Object.hasOwn(keys, event.key) && (!event.shiftKey || "?/".includes(event.key)) ? keys[event.key] : () => false;
  if (pressInForm(event) || act()) event.preventDefault();
});

// Buttons that copy what they name, or the text of the element before them. Without this script there are none.
const copyText = async (text) => {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.body.appendChild(document.createElement("textarea"));  // not over plain HTTP
  field.value = text;
  field.select();
  document.execCommand("copy");
  field.remove();
};
const told = document.body.appendChild(document.createElement("p"));
told.setAttribute("role", "status");
told.className = "told";
const addCopying = (button, read) => {
  const said = button.textContent;
  button.addEventListener("click", async () => {
    try { await copyText(read()); told.textContent = button.textContent = "Copied"; }
    catch { told.textContent = button.textContent = "Not copied: the browser refuses"; }
    setTimeout(() => { button.textContent = said; told.textContent = ""; }, 1500);
  });
  button.hidden = false;
};
for (const button of document.querySelectorAll("button[data-copy]")) addCopying(button, () => button.dataset.copy);
for (const button of document.querySelectorAll("button[data-copy-from]")) {
  const pieces = () => [...button.closest(button.dataset.copyFrom).querySelectorAll(".answer pre.text")];
  addCopying(button, () => pieces().map((one) => one.textContent).join(""));
}
for (const command of document.querySelectorAll("pre.command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  addCopying(button, () => command.firstChild.textContent);
  command.append(button);
}

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
