"use strict";
// Chats as this browser keeps them. A turn, which is a question with its answer, is an entry of its
// own: tabs that write at the same moment write different entries and lose nothing of each other.

const anyKey = () => crypto.randomUUID?.() ?? String(Math.random()).slice(2);
const byKey = (a, b) => (a.key < b.key ? -1 : 1);

function load(key, otherwise) {
  try { return JSON.parse(localStorage.getItem(key)) ?? otherwise; } catch { return otherwise; }
}

const store = (key, value) => localStorage.setItem(key, JSON.stringify(value));

function kept(prefix) {
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(prefix));
  return keys.map((key) => load(key, null)).filter((found) => found && typeof found === "object");
}

// The chat used last comes first, the turn asked first comes first.
const chats = () => kept("chat:").sort((a, b) => b.used - a.used || byKey(a, b));
const isTurn = (found) => typeof found.question === "string" && typeof found.answer?.text === "string";
const turnsOf = (id) => kept(`turn:${id}:`).filter(isTurn).sort((a, b) => a.at - b.at || byKey(a, b));
const entryOf = (turn) => `turn:${turn.chat}:${turn.key}`;

function newTurn(id, question, before) {
  const at = Math.max(Date.now(), (before.at(-1)?.at ?? 0) + 1);
  return { key: anyKey(), chat: id, at, question, answer: newAnswer() };
}

const newAnswer = () => ({ key: anyKey(), text: "" });

function saveTurn(turn, before) {
  // The chat is written first: a turn without one is what is left of a chat that was deleted.
  const [first] = [...before, turn];
  store(`chat:${turn.chat}`, { id: turn.chat, key: turn.chat, name: first.question.slice(0, 60), used: Date.now() });
  try {
    store(entryOf(turn), turn);
  } catch (error) {
    if (!turnsOf(turn.chat).length) localStorage.removeItem(`chat:${turn.chat}`);
    throw error;
  }
}

function saveAnswer(turn) {
  // Unless the turn was deleted since, or is being answered anew by another tab.
  if (load(entryOf(turn), null)?.answer.key === turn.answer.key) store(entryOf(turn), turn);
}

const removeTurns = (turns) => turns.forEach((turn) => localStorage.removeItem(entryOf(turn)));

function removeChat(id) {
  localStorage.removeItem(`chat:${id}`);
  removeTurns(turnsOf(id));
}

function tidy() {
  // Chats of version 0.2 are entries with all their messages; turns without a chat are left over.
  const order = load("chats", []).map((entry) => entry.id);
  for (const old of kept("chat:").filter((chat) => chat.messages)) upgrade(old, Date.now() - order.indexOf(old.id));
  localStorage.removeItem("chats");
  const known = new Set(chats().map((chat) => chat.id));
  const left = Object.keys(localStorage).filter((key) => /^turn:/.test(key) && !known.has(key.split(":")[1]));
  left.forEach((key) => localStorage.removeItem(key));
}

function upgrade(old, used) {
  const turns = [];
  for (const { role, content, ...about } of old.messages) {
    if (role === "user" || !turns.length) {
      const number = turns.length;  // the same key, should two tabs do this
      turns.push({ key: String(number), chat: old.id, at: number, question: "", answer: { key: String(number), text: "" } });
    }
    if (role === "user") turns.at(-1).question = content;
    else turns.at(-1).answer = { ...about, key: turns.at(-1).key, text: content };
  }
  for (const turn of turns) store(entryOf(turn), turn);
  if (!turns.length) localStorage.removeItem(`chat:${old.id}`);
  else store(`chat:${old.id}`, { id: old.id, key: old.id, name: turns[0].question.slice(0, 60), used });
}
