"""Hooks of the documentation site: tutorials are notebooks, links may point into the repository.

Each ``tutorials/NAME.ipynb`` becomes the page ``tutorials/NAME.md``; the notebook itself is kept
beside it to download. Links to files outside of ``docs`` are shown as plain paths: a site that is
read offline has nothing to point to.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

# [text](../src/x.py) and the like: a target above docs, or one without a page.
_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)\s]+|notes/?[^)\s]*|tour\.py)\)")
_SHIM = "https://unpkg.com/iframe-worker/shim"
DOCS = Path(__file__).parent


def notebook_page(path: Path) -> str:
    """A notebook as Markdown."""
    parts = [f"[Download this page as a notebook]({path.name})\n"]
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    first, *rest = parts[1:]
    return "\n\n".join([first, parts[0], *rest]) + "\n"


def on_files(files: Any, config: Any) -> Any:
    for path in sorted((DOCS / "tutorials").glob("*.ipynb")):
        name = f"tutorials/{path.stem}.md"
        files.append(File.generated(config, name, content=notebook_page(path)))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Take the script for search in files from the site itself, not from a host."""
    up = "../" * page.file.dest_uri.count("/")
    return output.replace(_SHIM, f"{up}assets/iframe-worker.js")


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    return output_content.replace(_SHIM, "assets/iframe-worker.js")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    here = DOCS / Path(page.file.src_uri).parent

    def plain(match: re.Match[str]) -> str:
        target = (here / match[2].partition("#")[0]).resolve()
        name = target.relative_to(DOCS).as_posix() if target.is_relative_to(DOCS) else ""
        is_page = files.get_file_from_path(name) is not None and target.suffix != ".py"
        return match[0] if is_page else match[1]

    return _OUTSIDE.sub(plain, markdown)
