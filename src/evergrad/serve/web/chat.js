"use strict";
// The chat's page. Chats are kept in this browser; answers come from /v1/chat/completions as
// server-sent events. Whatever is shown is set as text, never as HTML.

const $ = (id) => document.getElementById(id);
const DEFAULTS = { temperature: 0.7, top_k: "", top_p: "", min_p: "", repetition_penalty: 1,
                   max_tokens: "", seed: "", system: "", model: "" };
const FULL = "This browser keeps no more: delete a chat first.";
const streams = new Map();  // chat id -> {controller, message, tokens, started}: several at once
const finished = new Map();  // key -> message: the whole answers of this tab
let models = [];

// -- state ---------------------------------------------------------------------------------------

function load(key, otherwise) {
  try { return JSON.parse(localStorage.getItem(key)) ?? otherwise; } catch { return otherwise; }
}
const store = (key, value) => localStorage.setItem(key, JSON.stringify(value));
const chats = () => load("chats", []);
const chatOf = (id) => load(`chat:${id}`, null);
const settings = () => ({ ...DEFAULTS, ...load("settings", {}) });
const token = () => sessionStorage.getItem("token") || "";
const current = () => sessionStorage.getItem("current");

function save(chat) {
  store(`chat:${chat.id}`, chat);
  const others = chats().filter((entry) => entry.id !== chat.id);
  const first = chat.messages.find((message) => message.role === "user");
  store("chats", [{ id: chat.id, name: first ? first.content.slice(0, 60) : "New chat" }, ...others]);
}

function keep(id, message) {
  // The chat may have changed since the answer began, in another tab: only the answer is replaced.
  const chat = chatOf(id);
  const place = chat ? chat.messages.findIndex((other) => other.key === message.key) : -1;
  if (place < 0) return;
  chat.messages[place] = message;
  save(chat);
}

function restore(id) {
  // Tabs that end at the same moment each write the chat as they know it: the answers of this one
  // are put back where another has written what was there before.
  for (const message of chatOf(id)?.messages ?? []) {
    const own = finished.get(message.key);
    if (own && JSON.stringify(own) !== JSON.stringify(message)) keep(id, own);
  }
}

const anyKey = () => crypto.randomUUID?.() ?? String(Math.random()).slice(2);

function newChat() {
  const empty = chats().map((entry) => chatOf(entry.id)).find((chat) => chat && !chat.messages.length);
  const chat = empty || { id: anyKey(), messages: [] };
  save(chat);
  show(chat.id);
  $("input").focus();
}

function remove(id) {
  stop(id);
  localStorage.removeItem(`chat:${id}`);
  store("chats", chats().filter((entry) => entry.id !== id));
  if (current() === id) { const [next] = chats(); next ? show(next.id) : newChat(); } else { list(); }
}

// -- what is shown -------------------------------------------------------------------------------

function element(tag, properties = {}, ...children) {
  const found = Object.assign(document.createElement(tag), properties);
  found.append(...children);
  return found;
}

function list() {
  $("chats").replaceChildren(...chats().map((entry) => {
    const name = element("button", { className: "name", textContent: entry.name, title: entry.name });
    name.onclick = () => { show(entry.id); $("sidebar").classList.remove("open"); };
    if (streams.has(entry.id)) name.classList.add("busy");
    const gone = element("button", { textContent: "\u00d7", title: "Delete this chat" });
    gone.setAttribute("aria-label", `Delete ${entry.name}`);
    gone.onclick = () => remove(entry.id);
    const row = element("li", {}, name, gone);
    if (entry.id === current()) row.classList.add("current");
    return row;
  }));
}

function show(id) {
  sessionStorage.setItem("current", id);
  draw();
}

function draw() {
  const chat = chatOf(current());
  if (!chat) return newChat();
  const nearEnd = $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 80;
  const begun = streams.get(chat.id)?.message;  // kept once it is whole
  const shown = chat.messages.map((message, index) =>
    bubble(chat, begun && message.key === begun.key ? begun : message, index));
  if (!shown.length) shown.push(element("p", { className: "empty", textContent: "Say something." }));
  $("log").replaceChildren(...shown);
  if (nearEnd) $("log").scrollTop = $("log").scrollHeight;
  $("title").textContent = (chats().find((entry) => entry.id === chat.id) || {}).name || "";
  buttons();
  list();
}

function buttons() {
  const busy = streams.has(current());
  $("send").hidden = busy;
  $("stop").hidden = !busy;
}

function fill(body, text) {
  // Text between fences is code; everything is text.
  body.replaceChildren(...text.split(/```[^\n`]*\n?/).map((part, index) =>
    index % 2 ? element("pre", {}, element("code", { textContent: part })) : document.createTextNode(part)));
}

function bubble(chat, message, index) {
  const body = element("div", { className: "body" });
  fill(body, message.content);
  const isLast = index === chat.messages.length - 1;
  const busy = streams.has(chat.id);
  if (isLast && busy) body.classList.add("waiting");
  const tools = element("div", { className: "tools" });
  const tool = (name, act) => { const b = element("button", { className: "quiet", textContent: name }); b.onclick = act; tools.append(b); };
  tool("Copy", (event) => copy(message.content, event.target));
  if (message.role === "user" && !busy) tool("Edit", () => edit(chat.id, index, found));
  if (message.role === "assistant" && isLast && !busy) tool("Regenerate", () => regenerate(chat.id));
  if (message.speed) tools.append(element("span", { textContent: message.speed }));
  if (message.error) tools.append(element("span", { className: "error", textContent: message.error }));
  const found = element("div", { className: `message ${message.role}` }, body, tools);
  return found;
}

async function copy(text, button) {
  try { await navigator.clipboard.writeText(text); } catch {
    const area = element("textarea", { value: text });
    document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1200);
}

function edit(id, index, place) {
  const area = element("textarea", { value: chatOf(id).messages[index].content, rows: 3 });
  const done = element("button", { textContent: "Send" });
  const leave = element("button", { className: "quiet", textContent: "Cancel" });
  area.setAttribute("aria-label", "Edit the message");
  leave.onclick = draw;
  done.onclick = () => {
    const chat = chatOf(id);
    if (!area.value.trim() || streams.has(id)) return;
    chat.messages = [...chat.messages.slice(0, index), { role: "user", content: area.value }];
    answer(chat);
  };
  area.onkeydown = (event) => {
    if (event.key === "Escape") { event.stopPropagation(); draw(); }
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); done.click(); }
  };
  place.replaceChildren(area, element("div", { className: "tools" }, done, leave));
  area.focus();
}

// -- answers -------------------------------------------------------------------------------------

function send(id, text) {
  const chat = chatOf(id);
  if (!text.trim() || streams.has(id)) return;
  chat.messages.push({ role: "user", content: text });
  answer(chat);
}

function regenerate(id) {
  const chat = chatOf(id);
  if (streams.has(id) || !chat.messages.length) return;
  if (chat.messages.at(-1).role === "assistant") chat.messages.pop();
  answer(chat);
}

function stop(id) {
  streams.get(id)?.controller.abort();
}

function asked(chat) {
  const chosen = settings();
  const body = { stream: true, truncate: true, stream_options: { include_usage: true } };
  if (models.length) body.model = models.includes(chosen.model) ? chosen.model : models[0];
  for (const name of ["temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_tokens", "seed"])
    if (chosen[name] !== "" && chosen[name] !== null) body[name] = Number(chosen[name]);
  const before = chosen.system ? [{ role: "system", content: chosen.system }] : [];
  body.messages = [...before, ...chat.messages.map(({ role, content }) => ({ role, content }))];
  return body;
}

async function answer(chat) {
  const id = chat.id;
  const body = asked(chat);
  const message = { role: "assistant", content: "", key: anyKey() };
  const stream = { controller: new AbortController(), message, tokens: 0, started: performance.now() };
  chat.messages.push(message);
  try { save(chat); } catch { $("speed").textContent = FULL; draw(); return; }
  streams.set(id, stream);
  if (id === current()) { draw(); $("log").scrollTop = $("log").scrollHeight; } else { list(); }
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST", signal: stream.controller.signal, body: JSON.stringify(body),
      headers: { "Content-Type": "application/json", ...(token() && { Authorization: `Bearer ${token()}` }) },
    });
    if (!response.ok) throw new Error(await reason(response));
    const isWhole = await read(response.body, (event) => take(id, message, stream, event));
    if (!isWhole) throw new Error("the answer broke off");
  } catch (error) {
    if (error.name !== "AbortError" && !stream.isLeft) message.error = error.message;
    else message.speed = stopped(message);
  } finally {
    streams.delete(id);
    finished.set(message.key, message);
    try { keep(id, message); } catch { $("speed").textContent = FULL; }
    if (id === current()) draw(); else list();
  }
}

const stopped = (message) => [message.speed, "stopped"].filter(Boolean).join(", ");

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

function take(id, message, stream, event) {
  const now = performance.now();
  const text = event.choices[0]?.delta?.content;
  if (event.choices[0]?.finish_reason === "error") message.error = "the server failed";
  if (event.usage) stream.tokens = event.usage.completion_tokens;
  if (text) {
    stream.tokens += 1;
    message.content += text;
  }
  const seconds = (now - stream.started) / 1000;
  message.speed = `${stream.tokens} tokens, ${(stream.tokens / Math.max(seconds, 0.001)).toFixed(0)} tokens/s`;
  if (id !== current()) return;
  $("speed").textContent = message.speed;
  const last = $("log").lastElementChild?.querySelector(".body");
  const nearEnd = $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 80;
  if (last) fill(last, message.content);
  if (nearEnd) $("log").scrollTop = $("log").scrollHeight;
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

function openSettings() {
  const chosen = settings();
  $("model-choice").hidden = models.length < 2;
  $("settings").querySelector("[name=model]").replaceChildren(
    ...models.map((name) => element("option", { value: name, textContent: name })));
  chosen.model = models.includes(chosen.model) ? chosen.model : models[0];
  for (const field of $("settings").querySelectorAll("[name]")) field.value = chosen[field.name];
  $("settings").showModal();
}

$("settings").addEventListener("input", (event) => {
  if (event.target.validity.valid) store("settings", { ...settings(), [event.target.name]: event.target.value });
});
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("input").value;
  if (!text.trim() || streams.has(current())) return;
  send(current(), text);
  if (!streams.has(current())) return;  // it could not be kept
  $("input").value = "";
  grow();
});
$("input").addEventListener("input", grow);
$("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); $("form").requestSubmit(); }
});
$("stop").onclick = () => stop(current());
$("new").onclick = newChat;
$("theme").onclick = toggleTheme;
$("open-settings").onclick = openSettings;
$("menu").onclick = () => $("sidebar").classList.toggle("open");
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("settings").open) { stop(current()); $("sidebar").classList.remove("open"); }
  if (event.altKey && event.key === "n") { event.preventDefault(); newChat(); }
  if (event.altKey && event.key === "d") { event.preventDefault(); toggleTheme(); }
  if (event.altKey && event.key === ",") { event.preventDefault(); openSettings(); }
});
addEventListener("pagehide", () => {  // what has come of unfinished answers is kept
  for (const [id, stream] of streams) {
    stream.isLeft = true;
    keep(id, { ...stream.message, speed: stopped(stream.message) });
  }
});
addEventListener("storage", (event) => {  // another tab wrote
  if (event.key?.startsWith("chat:")) {
    try { restore(event.key.slice("chat:".length)); } catch { $("speed").textContent = FULL; }
  }
  if (event.key === "theme") theme();
  else if (event.key === `chat:${current()}` && !streams.has(current())) draw();
  else list();
});

async function begin() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) { sessionStorage.setItem("token", given); history.replaceState(null, "", "/"); }
  theme();
  const known = chats();
  if (chatOf(current())) draw();
  else if (known.length && chatOf(known[0].id)) show(known[0].id);
  else newChat();
  try {
    const response = await fetch("/v1/models", { headers: token() ? { Authorization: `Bearer ${token()}` } : {} });
    if (!response.ok) throw new Error(await reason(response));
    models = (await response.json()).data.map((entry) => entry.id);
    $("model").textContent = models[0];
  } catch (error) { $("model").textContent = error.message; }
  $("input").focus();
}
begin();
