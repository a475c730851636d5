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
  for await (const event of readEvents(answer.body)) {
    if (event.error) shown.textContent += `\n${makeVisible(event.error.message)}`;
    if (event.play?.not_kept) shown.textContent += `\nThis reply could not be kept: ${makeVisible(event.play.not_kept)}`;
    shown.textContent += makeVisible(event.choices?.[0]?.delta?.content ?? "");
    turn = event.play?.turn ?? turn;
  }
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
  const messages = JSON.parse(sent.get("conversation"));
  if (messages.length && messages.at(-1).role === "user" && sent.get("go_on")) {
    messages.push({ role: "assistant", content: sent.get("go_on") });
  }
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
