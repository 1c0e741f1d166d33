"use strict";
// Answers as elements: code between fences, tables, headings, **bold** and `code`; all else is text
// as it came. Elements are made and their text is set: nothing is ever read as HTML.

const FENCE = /^\s*(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^#{1,6}\s+(.+)$/;
const RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const INLINE = /(`[^`\n]+`|(?<!\*)\*\*(?!\s)[^*\n]+(?<!\s)\*\*(?!\*))/;

function element(tag, properties = {}, ...children) {
  const found = Object.assign(document.createElement(tag), properties);
  found.append(...children);
  return found;
}

function rendered(text) {
  const lines = text.split("\n"), nodes = [];
  let plain = [];
  const flush = (isLast) => {  // blocks keep a distance of their own: no empty lines beside them
    let part = plain.join("\n");
    if (nodes.length) part = part.replace(/^\n+/, "");
    if (!isLast) part = part.replace(/\n+$/, "");
    nodes.push(...inline(part));
    plain = [];
  };
  for (let i = 0; i < lines.length; i++) {
    const fence = lines[i].match(FENCE), heading = lines[i].match(HEADING);
    const end = fence ? endOfCode(lines, i, fence[1]) : endOfTable(lines, i);
    if (fence || heading || end > i) flush(false);
    if (fence) nodes.push(code(lines.slice(i + 1, end).join("\n"), fence[2].trim()));
    else if (heading) nodes.push(element("strong", { className: "heading" }, ...inline(heading[1])));
    else if (end > i) nodes.push(table(lines.slice(i, end + 1)));
    else plain.push(lines[i]);
    i = Math.max(i, end);
  }
  flush(true);
  return nodes;
}

function endOfCode(lines, begin, fence) {
  const closes = (line) => line.trim().startsWith(fence) && !line.trim().replaceAll(fence[0], "");
  const end = lines.findIndex((line, index) => index > begin && closes(line));
  return end < 0 ? lines.length : end;
}

function endOfTable(lines, begin) {
  // A row, a rule with as many cells, then more rows; else no line belongs to a table.
  const isRow = (line) => line?.includes("|");
  if (!isRow(lines[begin]) || !RULE.test(lines[begin + 1] ?? "")) return -1;
  if (cells(lines[begin]).length !== cells(lines[begin + 1]).length) return -1;
  let end = begin + 1;
  while (isRow(lines[end + 1])) end++;
  return end;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

function table([head, , ...rows]) {
  const row = (line, tag) => element("tr", {}, ...cells(line).map((cell) => element(tag, { dir: "auto" }, ...inline(cell))));
  const body = element("tbody", {}, ...rows.map((line) => row(line, "td")));
  return element("div", { className: "table" }, element("table", {}, element("thead", {}, row(head, "th")), body));
}

function code(text, language) {
  const head = element("div", { className: "head" }, element("span", { textContent: language }), copyButton(() => text));
  return element("div", { className: "code", dir: "ltr" }, head, element("pre", { tabIndex: 0 }, element("code", { textContent: text })));
}

function inline(text) {
  return text.split(INLINE).filter(Boolean).map((part) => {
    if (!INLINE.test(part)) return document.createTextNode(part);
    if (part[0] === "`") return element("code", { textContent: part.slice(1, -1) });
    return element("strong", { textContent: part.slice(2, -2) });
  });
}

function copyButton(text) {
  const found = element("button", { className: "quiet", type: "button", textContent: "Copy" });
  found.onclick = async () => {
    await copy(text());
    found.textContent = "Copied";
    setTimeout(() => { found.textContent = "Copy"; }, 1200);
  };
  return found;
}

async function copy(text) {
  try { await navigator.clipboard.writeText(text); } catch {
    const area = element("textarea", { value: text }), before = document.activeElement;
    document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
    before?.focus();
  }
}
