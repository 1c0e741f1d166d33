"""The one look of everything that is shown in a browser: reports, notebooks and the chat.

``PALETTE`` has the colours of light and dark pages and comes first in every style sheet, also in
that of the chat. ``SERIES`` has the colours of curves, areas and rectangles; they are the same on
both grounds, and each differs from its neighbours also in lightness.
"""

from __future__ import annotations

SERIES = (
    "#4c78a8", "#e45756", "#54a24b", "#f2a93b", "#b279a2", "#72b7b2", "#d67195", "#9aa5b1",
)  # fmt: skip

_LIGHT = """--ground: #ffffff; --panel: #f4f5f7; --text: #1d2129; --dim: #5d6673;
--line: #dcdfe4; --own: #e4eefb; --strong: #1f5fbf; --on-strong: #ffffff; --warn: #a4262c;"""
_DARK = """--ground: #16181c; --panel: #1e2126; --text: #e6e8eb; --dim: #9aa3af;
--line: #33383f; --own: #24344a; --strong: #7fb0f5; --on-strong: #0f1216; --warn: #ff8f8f;"""

PALETTE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {_DARK} }} }}
:root[data-theme="dark"] {{ color-scheme: dark; {_DARK} }}
:root[data-theme="light"] {{ color-scheme: light; }}
"""

STYLE = """
* { box-sizing: border-box; }
body { max-width: 1080px; margin: 0 auto; padding: 1.5rem 1.2rem 3rem; background: var(--ground);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h3 { font-size: .95rem; margin: 1.2rem 0 .4rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--line); }
p { margin: .5rem 0; } .dim, .foot { color: var(--dim); }
.foot { margin-top: 2.5rem; font-size: 13px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
td, th { padding: .25rem .9rem .25rem 0; text-align: left; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { font-weight: 600; color: var(--dim); font-size: 13px; }
td:last-child, th:last-child { padding-right: 0; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code, pre { font: 12.5px/1.5 ui-monospace, monospace; } td code { overflow-wrap: anywhere; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; overflow-x: auto;
  padding: .7rem .9rem; white-space: pre-wrap; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .15rem 0; }
.problem { border-left: 3px solid var(--warn); padding-left: .8rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: .6rem;
  margin: 1rem 0; padding: 0; list-style: none; }
.facts li { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: .5rem .8rem; min-width: 0; overflow-wrap: anywhere; }
.facts b { display: block; font-size: 1.05rem; font-variant-numeric: tabular-nums; }
.facts span { color: var(--dim); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr));
  gap: 1rem; }
figure { margin: 0; background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem .8rem; min-width: 0; }
figcaption { font-weight: 600; }
svg { display: block; width: 100%; height: auto; touch-action: pan-y; }
svg text { font-size: 12px; fill: var(--dim); } .grid { stroke: var(--text); stroke-opacity: .13; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: 13px; margin-top: .3rem; }
.legend span::before { content: ""; display: inline-block; width: .8em; height: .8em;
  border-radius: 2px; margin-right: .4em; background: var(--of); vertical-align: -1px; }
.hint { color: var(--dim); font-size: 12px; margin-left: auto; }
.part { fill-opacity: .82; } .part:hover { fill-opacity: 1; stroke: var(--text); }
.over { fill: transparent; } .over:hover { fill: var(--text); fill-opacity: .1; }
.tip { position: fixed; z-index: 9; pointer-events: none; background: var(--ground);
  border: 1px solid var(--line); border-radius: 6px; padding: .3rem .6rem; font-size: 13px;
  white-space: pre; box-shadow: 0 2px 10px #0003; font-variant-numeric: tabular-nums; }
.sample { image-rendering: pixelated; min-width: 256px; max-width: 100%; border-radius: 8px; }
@media print { .hint { display: none; } figure { break-inside: avoid; } }
"""
