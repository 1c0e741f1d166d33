"""The script of pages: hovering and zooming. Without it a page shows the same, standing still.

Charts are drawn anew from their data (``data-chart``) for the part that is zoomed into; other
drawings are zoomed as they are. Texts from data become text nodes, never markup.
"""

from __future__ import annotations

SCRIPT = r"""
(() => {
const NS = "http://www.w3.org/2000/svg";
const tip = document.createElement("div");
tip.className = "tip"; tip.hidden = true; document.body.append(tip);
const show = (event, text) => {
  tip.textContent = text; tip.hidden = false;
  const right = event.clientX + 14 + tip.offsetWidth > innerWidth;
  tip.style.left = (right ? event.clientX - 14 - tip.offsetWidth : event.clientX + 14) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4) + "px";
};
const hide = () => { tip.hidden = true; };
const place = (svg, event) => {
  const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
  return [view.x + (event.clientX - box.left) * view.width / box.width,
          view.y + (event.clientY - box.top) * view.height / box.height];
};
const told = (value, unit) => {
  if (unit === "bytes") {
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    let n = 0;
    while (Math.abs(value) >= 1024 && n < 4) { value /= 1024; n += 1; }
    return (n ? value.toFixed(2) : value.toFixed(0)) + " " + names[n];
  }
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e7))
    return value.toExponential(2);
  return value.toLocaleString("en", {maximumSignificantDigits: 5}) + (unit ? " " + unit : "");
};
const ticks = (low, high, count, unit) => {
  if (unit === "bytes") {
    const base = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(Math.abs(high), 1)) / 10));
    return ticks(low / base, high / base, count, "").map(value => value * base);
  }
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(f => f * power).find(s => s >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    found.push(i * step || 0);
  return found;
};
const make = (name, attributes, text) => {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};

for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const svg = figure.querySelector("svg"), data = JSON.parse(figure.dataset.chart);
  const {left, right, top, bottom} = data.frame;
  const xs = data.series.flatMap(s => s.points.map(p => p[0]));
  const whole = [Math.min(...xs), Math.max(...xs)];
  let range = whole, pressed = null;
  const X = x => left + (x - range[0]) / (range[1] - range[0] || 1) * (right - left);
  const draw = () => {
    const ys = data.series.flatMap(s => s.points.filter(
      p => p[0] >= range[0] && p[0] <= range[1]).map(p => p[1]));
    if (!ys.length) return;
    let low = Math.min(...ys), high = Math.max(...ys);
    if (data.zero) low = Math.min(0, low);
    const room = (high - low || Math.abs(high) || 1) * 0.08;
    high += room; if (!(data.zero && low === 0)) low -= room;
    const Y = y => bottom - (y - low) / (high - low) * (bottom - top);
    const parts = [];
    for (const y of ticks(low, high, 4, data.unit)) {
      parts.push(make("line", {class: "grid", x1: left, x2: right, y1: Y(y), y2: Y(y)}));
      parts.push(make("text", {x: left - 6, y: Y(y) + 4, "text-anchor": "end"},
        told(y, data.unit === "bytes" ? "bytes" : "")));
    }
    for (const x of ticks(range[0], range[1], 6))
      parts.push(make("text", {x: X(x), y: bottom + 18, "text-anchor": "middle"}, told(x, "")));
    for (const s of data.series) {
      const shown = s.points.filter((p, i) =>
        (s.points[i + 1] || p)[0] >= range[0] && (s.points[i - 1] || p)[0] <= range[1]);
      const d = shown.map((p, i) => (i ? "L" : "M") + X(p[0]).toFixed(1) + " "
        + Y(p[1]).toFixed(1)).join("");
      parts.push(make("path", {d, fill: "none", stroke: s.colour, "stroke-width": s.width,
        "stroke-opacity": s.opacity, "stroke-dasharray": s.dash, "clip-path": data.clip}));
      if (s.dots) for (const p of shown) if (p[0] >= range[0] && p[0] <= range[1])
        parts.push(make("circle", {cx: X(p[0]), cy: Y(p[1]), r: 3, fill: s.colour}));
    }
    svg.querySelector("g").replaceChildren(...parts);
  };
  const cursor = make("line", {class: "grid", y1: top, y2: bottom, x1: -9, x2: -9});
  const band = make("rect", {class: "over", y: top, height: bottom - top, width: 0});
  band.style.fillOpacity = .12; band.style.fill = "var(--text)";
  svg.append(cursor, band);
  const value = event => range[0] + (place(svg, event)[0] - left) / (right - left)
    * (range[1] - range[0]);
  const zoom = (a, b) => {
    range = [Math.max(whole[0], Math.min(a, b)), Math.min(whole[1], Math.max(a, b))];
    if (range[1] - range[0] < (whole[1] - whole[0]) / 1e4) range = whole;
    draw();
  };
  svg.addEventListener("pointermove", event => {
    const x = value(event);
    if (x < range[0] || x > range[1]) { hide(); return; }
    cursor.setAttribute("x1", X(x)); cursor.setAttribute("x2", X(x));
    if (pressed !== null) {
      band.setAttribute("x", Math.min(X(pressed), X(x)));
      band.setAttribute("width", Math.abs(X(pressed) - X(x)));
    }
    const lines = data.series.filter(s => s.points.length).map(s => {
      const near = s.points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
      return [near[0], s.name + ": " + told(near[1], data.unit)];
    });
    show(event, data.x + " " + told(lines[0][0], "") + "\n" + lines.map(l => l[1]).join("\n"));
  });
  svg.addEventListener("pointerleave", () => { hide(); cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9); });
  svg.addEventListener("pointerdown", event => { pressed = value(event);
    svg.setPointerCapture(event.pointerId); });
  svg.addEventListener("pointerup", event => {
    const end = value(event), begin = pressed;
    pressed = null; band.setAttribute("width", 0);
    if (begin !== null && Math.abs(X(end) - X(begin)) > 8) zoom(begin, end);
  });
  svg.addEventListener("dblclick", () => { range = whole; draw(); });
  svg.addEventListener("wheel", event => {
    event.preventDefault();
    const at = value(event), factor = event.deltaY < 0 ? 0.8 : 1.25;
    zoom(at - (at - range[0]) * factor, at + (range[1] - at) * factor);
  }, {passive: false});
  draw();
}

for (const svg of document.querySelectorAll("svg.drawing")) {
  const view = svg.viewBox.baseVal, whole = [view.x, view.y, view.width, view.height];
  let drag = null;
  const set = (x, y, w, h) => {
    w = Math.min(w, whole[2]); h = Math.min(h, whole[3]);
    svg.setAttribute("viewBox", [Math.max(0, Math.min(x, whole[2] - w)),
      Math.max(0, Math.min(y, whole[3] - h)), w, h].join(" "));
  };
  for (const title of svg.querySelectorAll("title")) {
    const owner = title.parentNode, text = title.textContent;
    title.remove(); owner.setAttribute("aria-label", text);
    owner.addEventListener("pointermove", event => show(event, text));
    owner.addEventListener("pointerleave", hide);
  }
  svg.addEventListener("wheel", event => {
    event.preventDefault();
    const [x, y] = place(svg, event), f = event.deltaY < 0 ? 0.8 : 1.25;
    if (view.width * f < whole[2] / 50) return;
    set(x - (x - view.x) * f, y - (y - view.y) * f, view.width * f, view.height * f);
  }, {passive: false});
  svg.addEventListener("pointerdown", event => { drag = place(svg, event); });
  svg.addEventListener("pointermove", event => {
    if (!drag || !event.buttons) { drag = null; return; }
    const [x, y] = place(svg, event);
    set(view.x + drag[0] - x, view.y + drag[1] - y, view.width, view.height);
  });
  svg.addEventListener("dblclick", () => set(...whole));
}
})();
"""
