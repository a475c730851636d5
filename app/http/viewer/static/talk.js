// Replies appear while they are written. Without this script the form is sent, and the page comes with whole replies.
// What is not to be kept goes that way too, as all that a draft says: it stands in no page that could be opened again.
const form = document.getElementById("say");
const live = document.querySelector(".live");

// As pages show what nobody would see: by its code.
const makeVisible = (text) => text.replace(/(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
  (sign) => `⟨U+${sign.codePointAt().toString(16).toUpperCase().padStart(4, "0")}⟩`);

// A field that nobody changed sends what it was: the page shows it with the codes of what nobody would see.
const readField = (name) => {
  const field = form.elements[name];
  return (field.value === field.defaultValue ? form.elements[`was.${name}`] ?? field : field).value.trim();
};

const readEvents = async function* (body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    waiting += value;
    const events = waiting.split("\n\n");
    waiting = events.pop();
    for (const event of events) if (event.startsWith("data: {")) yield JSON.parse(event.slice(6));
  }
};

const addCard = (policy) => {
  const card = document.createElement("article");
  card.className = "card";
  const head = document.createElement("h3");
  head.textContent = policy;
  const text = document.createElement("pre");
  text.className = "text prose";
  text.dir = "auto";
  card.append(head, text);
  live.append(card);
  return text;
};

// The turn that holds the reply; null where there was none, and the card says why.
const streamReply = async (policy, request) => {
  const shown = addCard(policy);
  try {
    return await fillCard(shown, policy, request);
  } catch (error) {
    shown.textContent += `\nThe reply broke off: ${makeVisible(error.message)}`;
    return null;
  }
};

// As the page writes a kept call.
const describeCall = ({ name, text }) => {
  const given = Object.entries(JSON.parse(text)).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  const words = makeVisible(`${name}(${given.join(", ")})`);
  return words.length > 300 ? `${words.slice(0, 300)}…` : words;
};

const showCall = (shown, call) => {
  const mark = document.createElement("p");
  mark.className = "does";
  mark.textContent = `does: ${describeCall(call)}`;
  shown.after(mark);
};

// A line of the conversation, with each call answered, as the API takes it.
const writeLine = ({ role, content = "", calls = [] }) => {
  const made = calls.map(({ name, arguments: given }, place) => ({
    id: `call${place}`, type: "function", function: { name, arguments: JSON.stringify(given) },
  }));
  const results = calls.map(({ result }, place) => ({ role: "tool", tool_call_id: `call${place}`, content: result }));
  return [{ role, content, ...(made.length ? { tool_calls: made } : {}) }, ...results];
};

const fillCard = async (shown, policy, request) => {
  const answer = await fetch(form.dataset.completions, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...request, stream: true, play: { ...request.play, policy } }),
  });
  if (!answer.ok) {
    const said = await answer.json().catch(() => null);
    shown.textContent = said?.error?.message ? makeVisible(said.error.message) : `The service answered with ${answer.status}.`;
    return null;
  }
  let turn = null;
  const calls = [];
  for await (const event of readEvents(answer.body)) {
    if (event.error) shown.textContent += `\n${makeVisible(event.error.message)}`;
    if (event.play?.not_kept) shown.textContent += `\nThis reply could not be kept: ${makeVisible(event.play.not_kept)}`;
    shown.textContent += makeVisible(event.choices?.[0]?.delta?.content ?? "");
    for (const part of event.choices?.[0]?.delta?.tool_calls ?? []) {
      calls[part.index] ??= { name: part.function.name, text: "" };
      calls[part.index].text += part.function.arguments;
    }
    turn = event.play?.turn ?? turn;
  }
  for (const call of calls.reverse()) showCall(shown, call);
  return turn;
};

// A character is met in its own world, where there is one, until another world is chosen.
const findHome = () => form.elements.character.selectedOptions[0]?.dataset.world ?? "";
let home = form ? findHome() : "";
form?.elements.character.addEventListener("change", () => {
  const before = home;
  home = findHome();
  if (form.elements.world.value === before) form.elements.world.value = home;
});

form?.addEventListener("submit", async (submitted) => {
  if (submitted.submitter?.hasAttribute("formaction")) return;
  const sent = new FormData(form);
  const policies = sent.getAll("policy");
  const [line, happens] = [readField("line"), readField("event")];
  const isKept = sent.get("store") !== "false" && !sent.get("character").startsWith("draft:");
  if (!isKept || !policies.length || !line === !happens) return;
  submitted.preventDefault();
  const said = JSON.parse(sent.get("conversation"));
  if (said.length && said.at(-1).role === "user" && sent.get("go_on")) said.push(JSON.parse(sent.get("go_on")));
  const messages = said.flatMap(writeLine);
  if (line) messages.push({ role: "user", content: line });
  const play = { character: sent.get("character"), kind: "turn" };
  if (sent.get("world")) play.world = sent.get("world");
  if (sent.get("as_of")) play.as_of = `${sent.get("as_of")}Z`;
  if (readField("player_name")) play.player_name = readField("player_name");
  if (happens) play.event = happens;
  live.replaceChildren();
  live.hidden = false;
  const turns = await Promise.all(policies.map((policy) => streamReply(policy, { model: "", messages, play })));
  const turn = turns.find(Boolean);
  if (!turn || turns.includes(null)) return;
  const query = new URLSearchParams([["turn", turn], ...policies.map((policy) => ["policy", policy])]);
  location.assign(`${form.dataset.page}?${query}`);
});
