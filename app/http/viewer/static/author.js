// Checks what is being written, half a second after the last key, by the same form that the button sends. The server
// renders the answer, so that texts stay texts. Without this script the button does it.
const form = document.querySelector("form.writing");
const area = document.getElementById("text");
const told = document.getElementById("dropped");
let timer = 0;
let asked = 0;

const check = async () => {
  const number = ++asked;
  const fields = new URLSearchParams(new FormData(form));
  fields.set("do", "check");
  try {
    const reply = await fetch(form.action, { method: "POST", body: fields, headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    if (number !== asked) return;
    if (!page.getElementById("checked")) throw new Error(`The check was answered with ${reply.status}: what it said is of an earlier text.`);
    replaceParts(page, ["findings-now", "checked", "tabs"]);
    const count = form.querySelector("[data-count]"); // forms of what is new have neither findings nor a count
    if (count) count.textContent = page.querySelector("[data-count]").textContent;
    tell("");
  } catch (error) {
    tell(error.message);
  }
};

const replaceParts = (page, ids) => {
  for (const id of ids) document.getElementById(id)?.replaceWith(page.getElementById(id));
};

const tell = (text) => {
  if (told) told.textContent = text;
};

// A finding leads to its line in the text.
document.addEventListener("click", (event) => {
  const line = Number(event.target.dataset && event.target.dataset.line);
  if (!line || !area) return;
  event.preventDefault();
  const lines = area.value.split("\n");
  const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[line - 1] || "").length);
  area.scrollTop = (area.scrollHeight / lines.length) * Math.max(0, line - 4);
});

const checkSoon = () => {
  clearTimeout(timer);
  timer = setTimeout(check, 500);
};

if (form) {
  form.addEventListener("input", checkSoon);
  form.addEventListener("change", checkSoon);
}

// A file that is dropped: YAML is taken as it is, a card is read by the service, and what is in a ZIP becomes drafts.
const isPlain = (file) => /\.(ya?ml|txt)$/i.test(file.name);

const readAsText = async (file, path) => {
  if (isPlain(file)) return { text: await file.text(), id: file.name.replace(/\.[^.]*$/, "") };
  const reply = await fetch(path, { method: "POST", body: file });
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.detail);
  return answer;
};

const takeIntoForm = async (file) => {
  area.value = (await readAsText(file, form.dataset.import)).text;
  tell(`${file.name} is in the field. Save it as a draft, or publish it.`);
  check();
};

const begin = (root, id, text) => {
  const made = document.createElement("form");
  made.method = "post";
  made.action = `${root}/view/characters/${encodeURIComponent(id)}/edit`;
  for (const [name, value] of Object.entries({ do: "check", text, stamp: "0." })) {
    const field = document.createElement("textarea");
    field.name = name;
    field.value = value;
    made.append(field);
  }
  made.hidden = true;
  document.body.append(made);
  made.submit();
};

const takeFile = async (file, root) => {
  if (/\.zip$/i.test(file.name)) {
    const reply = await fetch(`${root}/view/author/archive`, { method: "POST", body: file, headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    if (!page.getElementById("brought")) throw new Error(`The file was answered with ${reply.status}: nothing is stored.`);
    replaceParts(page, ["problem", "brought", "drafts-now"]);
    return;
  }
  const read = await readAsText(file, `${root}/characters/import`);
  if (read.kind === "lorebook") throw new Error("This is a lorebook: drop it on a lorebook of a world.");
  begin(root, read.id, read.text);
};

const accept = async (file) => {
  if (!file) return;
  try {
    if (place.dataset.drop === undefined) await takeIntoForm(file);
    else await takeFile(file, place.dataset.drop);
  } catch (error) {
    tell(error.message);
  }
};

const place = (form && form.dataset.import && form) || document.querySelector("[data-drop]");
if (place) {
  place.hidden = false; // without this script nobody reads a file
  place.addEventListener("dragover", (event) => event.preventDefault());
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    accept(event.dataTransfer.files[0]);
  });
  const chosen = place.querySelector("input[type=file]");
  if (chosen) chosen.addEventListener("change", () => accept(chosen.files[0]));
}
