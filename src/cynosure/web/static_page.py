"""Play and the story as files that any web server, or a folder of one's docs, can show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlencode

from .answers.tokens import configurations, dynamics

_STATIC = Path(__file__).with_name("static")
_LEFT_OUT = frozenset(
    "api.js local.js look.js read.js gallery.js labels.js versions.js reference.js reference.html "
    "widget.js widget.css index.html".split()
)


def export(folder: Path) -> Path:
    """The page, which computes in the browser, in `folder`, new or empty: its first file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: expected a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path in _STATIC.iterdir():
        if path.name not in _LEFT_OUT:
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / "api.js").write_bytes((_STATIC / "local.js").read_bytes())
    (folder / "configurations.json").write_text(json.dumps(_kept()), "utf-8")
    page = (_STATIC / "index.html").read_text("utf-8").replace("/static/", "./")
    page = re.sub(r"<html ", "<html data-local ", page, count=1)
    (folder / "index.html").write_text(page, "utf-8")
    return folder / "index.html"


def _kept() -> dict[str, object]:
    """What the page asks a server for at its start: tokens of the presets, and the forms."""
    presets = json.loads((_STATIC / "presets.json").read_text("utf-8"))
    tokens = {}
    for _, name, params, _ in (row for rows in presets.values() for row in rows):
        text = {key: str(value) for key, value in params.items()}
        tokens[f"{name}?{urlencode(params)}"] = configurations({"name": name, "params": text})
    every = dynamics({})
    known = {"pure_attention": every["dynamics"]["pure_attention"]}
    attentions = {name: every["attentions"][name] for name in ("hardmax", "softmax")}
    return {"tokens": tokens, "dynamics": {"dynamics": known, "attentions": attentions}}
