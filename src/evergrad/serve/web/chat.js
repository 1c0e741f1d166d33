"use strict";
// The chat's page. Answers come from /v1/chat/completions as server-sent events.

const $ = (id) => document.getElementById(id);
const DEFAULTS = { temperature: 0.7, top_k: "", top_p: "", min_p: "", repetition_penalty: 1,
                   max_tokens: "", seed: "", system: "", model: "" };
const NUMBERS = ["temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_tokens", "seed"];
const FULL = "This browser keeps no more: delete a chat first.";
const KEPT_EACH = 1000;  // milliseconds after which what has come of an answer is kept
const streams = new Map();  // chat id -> {controller, turn, tokens, started, ...}: several at once
let models = [];
let drawn = new Map();  // turn key -> {signature, nodes}: what is the same is not made anew
let editing = null;  // {key, place}: a question that is being changed

const settings = () => ({ ...DEFAULTS, ...load("settings", {}) });
const token = () => sessionStorage.getItem("token") || "";
const current = () => sessionStorage.getItem("current");
const notice = (text = "") => { $("notice").textContent = text; };

// -- what is shown -------------------------------------------------------------------------------

function replace(place, children, otherwise) {
  // The element that had the focus has it again, or one that is there still.
  const held = place.contains(document.activeElement) && document.activeElement !== place ? document.activeElement : null;
  place.replaceChildren(...children);
  if (!held) return;
  const same = place.contains(held) ? held : held.dataset.name && place.querySelector(`[data-name="${CSS.escape(held.dataset.name)}"]`);
  (same || otherwise).focus({ preventScroll: true });
}

function button(name, textContent, act, properties = {}) {
  const found = element("button", { type: "button", textContent, ...properties });
  found.dataset.name = name;
  found.onclick = act;
  return found;
}

function list() {
  const known = chats();
  const signature = JSON.stringify([known.map(({ id, name }) => [id, name, streams.has(id)]), current()]);
  if ($("chats").dataset.signature === signature) return;
  $("chats").dataset.signature = signature;
  replace($("chats"), known.map(row), $("new"));
}

function row(chat) {
  const name = button(`open ${chat.id}`, chat.name || "New chat", () => { show(chat.id); toggleSidebar(false); }, { className: "name", title: chat.name, dir: "auto" });
  if (streams.has(chat.id)) name.classList.add("busy");
  const gone = button(`delete ${chat.id}`, "\u00d7", () => {
    if (gone.classList.contains("sure")) { remove(chat.id); return; }
    gone.classList.add("sure");
    gone.textContent = "Delete?";
  }, { className: "gone", title: "Delete this chat" });
  gone.setAttribute("aria-label", `Delete ${chat.name}`);
  gone.onblur = () => { gone.classList.remove("sure"); gone.textContent = "\u00d7"; };
  const found = element("li", {}, name, gone);
  if (chat.id === current()) { found.classList.add("current"); name.setAttribute("aria-current", "true"); }
  return found;
}

function newChat() {
  show(anyKey());  // it is kept once there is a question
  toggleSidebar(false);
  $("input").focus();
}

function show(id) {
  sessionStorage.setItem("current", id);
  editing = null;
  draw();
  $("log").scrollTop = $("log").scrollHeight;
}

function remove(id) {
  stop(id);
  removeChat(id);
  if (current() !== id) { list(); return; }
  const [next] = chats();
  next ? show(next.id) : newChat();
}

const isNearEnd = () => $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 80;

function draw() {
  const id = current(), turns = turnsOf(id), stream = streams.get(id), follow = isNearEnd();
  const made = new Map(turns.map((turn, index) => [turn.key, bubbles(turn, index === turns.length - 1, stream)]));
  const shown = [...made.values()].flatMap(({ nodes }) => nodes);
  drawn = made;
  $("empty").hidden = shown.length > 0;
  replace($("messages"), shown, $("log"));
  if (follow) $("log").scrollTop = $("log").scrollHeight;
  $("title").textContent = turns[0]?.question.slice(0, 60) ?? "";
  $("speed").textContent = (stream ?? {}).turn?.answer.speed ?? "";
  $("send").hidden = Boolean(stream);
  $("stop").hidden = !stream;
  $("log").setAttribute("aria-busy", String(Boolean(stream)));
  list();
}

function bubbles(turn, isLast, stream) {
  const isStreamed = stream?.turn.key === turn.key;
  const signature = JSON.stringify([turn, isLast, Boolean(stream), editing?.key === turn.key]);
  if (!isStreamed && drawn.get(turn.key)?.signature === signature) return drawn.get(turn.key);
  const { answer } = isStreamed ? stream.turn : turn;  // kept from time to time
  const asked = element("div", { className: "body", dir: "auto", textContent: turn.question });
  const question = message("user", turn, asked, turn.question);
  if (!stream) tool(question, turn, "Edit", () => edit(turn));
  const said = element("div", { className: "body", dir: "auto" }, ...rendered(answer.text));
  const reply = message("assistant", turn, said, () => answer.text);
  if (isStreamed) { stream.body = said; said.classList.add("waiting"); }
  else if (!answer.text) said.dataset.none = answer.error || answer.speed ? "no answer" : "no answer yet";
  if (isLast && !stream) tool(reply, turn, "Regenerate", () => regenerate(turn.chat));
  const tools = reply.lastElementChild;
  if (answer.speed && !isStreamed) tools.append(element("span", { textContent: answer.speed }));
  if (answer.error) tools.append(element("span", { className: "error", textContent: answer.error }));
  const shown = editing?.key === turn.key ? editing.place : question;
  return { signature: isStreamed ? "" : signature, nodes: turn.question ? [shown, reply] : [reply] };
}

function message(role, turn, body, text) {
  const copied = copyButton(typeof text === "function" ? text : () => text);
  copied.dataset.name = `${role} Copy ${turn.key}`;
  const who = element("span", { className: "hidden", textContent: role === "user" ? "You: " : "Answer: " });
  return element("div", { className: `message ${role}` }, who, body, element("div", { className: "tools" }, copied));
}

function tool(place, turn, name, act) {
  place.lastElementChild.append(button(`${name} ${turn.key}`, name, act, { className: "quiet" }));
}

function edit(turn) {
  const area = element("textarea", { value: turn.question, rows: Math.min(12, turn.question.split("\n").length + 1), dir: "auto" });
  const leave = () => { editing = null; draw(); $("messages").querySelector(`[data-name="Edit ${turn.key}"]`)?.focus(); };
  const done = button("send edit", "Send", () => { if (change(turn, area.value)) $("input").focus(); });
  area.setAttribute("aria-label", "Edit the message");
  area.onkeydown = (event) => {
    if (event.key === "Escape") { event.stopPropagation(); leave(); }
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); done.click(); }
  };
  const tools = element("div", { className: "tools" }, done, button("leave edit", "Cancel", leave, { className: "quiet" }));
  editing = { key: turn.key, place: element("div", { className: "message user" }, area, tools) };
  draw();
  area.focus();
}

// -- questions -----------------------------------------------------------------------------------

function send(id, question) {
  const before = turnsOf(id);
  return begin(newTurn(id, question, before), before);
}

function change(turn, question) {
  const turns = turnsOf(turn.chat);
  const place = turns.findIndex((other) => other.key === turn.key);
  const before = turns.slice(0, Math.max(0, place));
  return begin(newTurn(turn.chat, question, before), before, turns.slice(before.length));
}

function regenerate(id) {
  const turns = turnsOf(id), last = turns.at(-1);
  if (last) begin({ ...last, answer: newAnswer() }, turns.slice(0, -1));
}

function begin(turn, before, instead = []) {
  // Keep a turn in place of others and have it answered; whether that could be done.
  if (!turn.question.trim() || streams.has(turn.chat)) return false;
  try { saveTurn(turn, before); } catch { notice(FULL); return false; }
  removeTurns(instead);
  editing = null;
  notice();
  answer(turn, asked(before, turn));
  return true;
}

function stop(id) {
  streams.get(id)?.controller.abort();
}

// -- answers -------------------------------------------------------------------------------------

function asked(before, turn) {
  const chosen = settings();
  const body = { stream: true, truncate: true, stream_options: { include_usage: true } };
  if (models.length) body.model = models.includes(chosen.model) ? chosen.model : models[0];
  for (const name of NUMBERS)
    if (chosen[name] !== "" && chosen[name] !== null) body[name] = Number(chosen[name]);
  body.messages = chosen.system ? [{ role: "system", content: chosen.system }] : [];
  for (const { question, answer } of before) {
    if (question) body.messages.push({ role: "user", content: question });
    body.messages.push({ role: "assistant", content: answer.text });
  }
  body.messages.push({ role: "user", content: turn.question });
  return body;
}

function authorized(headers = {}) {
  // A header has bytes: those of the token's UTF-8.
  const bytes = Array.from(new TextEncoder().encode(token()), (byte) => String.fromCharCode(byte)).join("");
  return bytes ? { ...headers, Authorization: `Bearer ${bytes}` } : headers;
}

async function answer(turn, body) {
  const id = turn.chat, now = performance.now();
  const stream = { controller: new AbortController(), turn, tokens: 0, started: now, kept: now };
  streams.set(id, stream);
  if (id === current()) { draw(); $("log").scrollTop = $("log").scrollHeight; } else { list(); }
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST", signal: stream.controller.signal, body: JSON.stringify(body),
      headers: authorized({ "Content-Type": "application/json" }),
    });
    if (!response.ok) throw new Error(await reason(response));
    const isWhole = await read(response.body, (event) => take(stream, event));
    if (!isWhole) throw new Error("the answer broke off");
  } catch (error) {
    if (error.name !== "AbortError" && !stream.isLeft) turn.answer.error = told(error);
    else turn.answer.speed = stopped(turn.answer);
  } finally {
    streams.delete(id);
    keep(turn);
    if (id === current()) draw(); else list();
  }
}

const told = (error) => (error instanceof TypeError ? "the server cannot be reached" : error.message);
const stopped = (answer) => [answer.speed, "stopped"].filter(Boolean).join(", ");

function keep(turn) {
  try { saveAnswer(turn); } catch { notice(FULL); }
}

async function reason(response) {
  try { return (await response.json()).error.message; } catch { return `error ${response.status}`; }
}

async function read(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return false;
    waiting += value;
    const parts = waiting.split("\n\n");
    waiting = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") return true;
      take(JSON.parse(data));
    }
  }
}

function take(stream, event) {
  const { answer } = stream.turn, now = performance.now();
  const text = event.choices[0]?.delta?.content;
  if (event.choices[0]?.finish_reason === "error") answer.error = "the server failed";
  if (event.usage) stream.tokens = event.usage.completion_tokens;
  if (text) {
    stream.tokens += 1;
    answer.text += text;
  }
  const seconds = (now - stream.started) / 1000;
  answer.speed = `${stream.tokens} tokens, ${(stream.tokens / Math.max(seconds, 0.001)).toFixed(0)} tokens/s`;
  if (now - stream.kept > KEPT_EACH) { stream.kept = now; keep(stream.turn); }
  if (stream.turn.chat !== current() || stream.isDrawn) return;
  stream.isDrawn = true;  // once for all pieces that come before the next frame
  requestAnimationFrame(() => {
    stream.isDrawn = false;
    if (streams.get(current()) !== stream) return;
    const follow = isNearEnd();
    $("speed").textContent = answer.speed;
    stream.body.replaceChildren(...rendered(answer.text));
    if (follow) $("log").scrollTop = $("log").scrollHeight;
  });
}

// -- controls ------------------------------------------------------------------------------------

function grow() {
  $("input").style.height = "auto";
  $("input").style.height = `${$("input").scrollHeight + 2}px`;
}

function theme(next) {
  if (next) store("theme", next);
  const chosen = load("theme", "");
  if (chosen) document.documentElement.dataset.theme = chosen;
}

function toggleTheme() {
  const shown = document.documentElement.dataset.theme
    || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  theme(shown === "dark" ? "light" : "dark");
}

function toggleSidebar(isOpen) {
  $("sidebar").classList.toggle("open", isOpen);
  $("menu").setAttribute("aria-expanded", String(isOpen));
  if (isOpen) $("new").focus();
}

function openSettings() {
  const chosen = settings();
  $("model-choice").hidden = models.length < 2;
  $("settings").querySelector("[name=model]").replaceChildren(
    ...models.map((name) => element("option", { value: name, textContent: name })));
  chosen.model = models.includes(chosen.model) ? chosen.model : models[0];
  for (const field of $("settings").querySelectorAll("[name]")) field.value = chosen[field.name] ?? "";
  $("token").value = token();
  if (!$("settings").open) $("settings").showModal();
}

$("settings").addEventListener("input", ({ target }) => {
  if (target.id === "token") { sessionStorage.setItem("token", target.value.trim()); return; }
  if (target.validity.valid) store("settings", { ...settings(), [target.name]: target.value });
});
$("settings").addEventListener("close", () => { if (!models.length) findModels(); });
$("defaults").onclick = () => { store("settings", { model: settings().model }); openSettings(); };
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!send(current(), $("input").value)) return;
  $("input").value = "";
  grow();
});
$("input").addEventListener("input", grow);
$("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); $("form").requestSubmit(); }
});
$("stop").onclick = () => { stop(current()); $("input").focus(); };
$("new").onclick = newChat;
$("theme").onclick = toggleTheme;
$("open-settings").onclick = openSettings;
$("menu").onclick = () => toggleSidebar(!$("sidebar").classList.contains("open"));
$("shade").onclick = () => toggleSidebar(false);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("settings").open) {
    if ($("sidebar").classList.contains("open")) { toggleSidebar(false); $("menu").focus(); } else { stop(current()); }
  }
  if (!event.altKey) return;  // with Alt some systems give another letter: then the place counts
  const act = { n: newChat, d: toggleTheme, ",": openSettings }[event.key]
    ?? { KeyN: newChat, KeyD: toggleTheme, Comma: openSettings }[event.code];
  if (act) { event.preventDefault(); act(); }
});
addEventListener("pagehide", () => {  // what has come of unfinished answers is kept
  for (const stream of streams.values()) {
    stream.isLeft = true;
    const { answer } = stream.turn;
    keep({ ...stream.turn, answer: { ...answer, speed: stopped(answer) } });
  }
});
addEventListener("storage", (event) => {  // another tab wrote
  if (event.key === "theme") theme();
  else if (event.key === null || event.key.startsWith(`turn:${current()}:`)) draw();
  else if (event.key.startsWith("chat:")) list();
});

async function findModels() {
  try {
    const response = await fetch("/v1/models", { headers: authorized() });
    if (response.status === 401) throw new Error("This server needs its token: enter it in the settings.");
    if (!response.ok) throw new Error(await reason(response));
    models = (await response.json()).data.map((entry) => entry.id);
    $("model").textContent = models[0];
    notice();
  } catch (error) { notice(told(error)); }
}

function start() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) { sessionStorage.setItem("token", given); history.replaceState(null, "", "/"); }
  theme();
  try { tidy(); } catch { notice(FULL); }
  const last = current() ?? chats()[0]?.id;
  last ? show(last) : newChat();
  findModels();
  $("input").focus();
}
start();
