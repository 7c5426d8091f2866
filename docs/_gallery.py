"""The gallery: one figure of each experiment, taken from full runs and stored in docs/gallery/."""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from _markdown import prose
from cynosure import cli
from cynosure.drawing.report import jsonable
from cynosure.experiments import available, chapters

GALLERY = Path(__file__).resolve().parent / "gallery"
TELLING = {"emergent_leaders": 2, "sentiment_paper": 4}  # the figure, if not the first
LARGEST = 90_000  # bytes of a picture
WIDTH = 900  # pixels


# Experiments that changed since their last full run, or whose controls refuted it: shown again once
# they have been run in full.
TO_BE_RUN = ("finite_depth", "head_flow")


def stored(folder: Path = GALLERY) -> dict[str, dict[str, Any]]:
    """Name -> what the gallery shows of that experiment."""
    path = folder / "gallery.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def own_params(module: ModuleType) -> dict[str, Any]:
    """The default parameters, without the places of data and models on somebody's machine."""
    params: dict[str, Any] = jsonable(asdict(module.Params()))
    return {name: value for name, value in params.items() if value != ""}


def _reads_data(module: ModuleType) -> bool:
    """Does the experiment need a data set that does not come with the package?"""
    return any(f.name == "data" and f.default == "" for f in fields(module.Params))


def entry(name: str, folder: Path, pictures: Path = GALLERY) -> dict[str, Any]:
    """What the gallery shows of the run in `folder`; its picture goes to `pictures`."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    params = own_params(available()[name])
    other = [key for key, value in params.items() if report["params"].get(key) != value]
    if other:
        raise ValueError(f"{name}: not a run with the default parameters ({', '.join(other)})")
    figure, path = _figures(report, folder / "data")[TELLING.get(name, 1) - 1]
    pictures.mkdir(parents=True, exist_ok=True)
    (pictures / f"{name}.png").write_bytes(small_picture(path))
    return {
        "title": report["title"],
        "figure": figure,
        "text": _finding(report),
        "verdict": report["verdict"],
        "params": params,
        "version": report["version"],
    }


def _finding(report: dict[str, Any]) -> str:
    """The first paragraph, and where it has no number of two digits the first one that has."""
    first, *rest = (p for text in _summaries(report) for p in re.split(r"\n\s*\n", text.strip()))
    number = re.compile(r"\d[.\d%]")
    if number.search(first):
        return first
    return "\n\n".join([first, *[p for p in rest if number.search(p)][:1]])


def _summaries(report: dict[str, Any]) -> list[str]:
    inner = [text for chapter in report["chapters"] for text in _summaries(chapter)]
    return [report["summary"], *inner]


def _figures(report: dict[str, Any], folder: Path) -> list[tuple[dict[str, str], Path]]:
    """(title and caption, PNG) of every figure of a report and of its chapters."""
    own = [
        (figure, next(folder.glob(f"figure{i}-*.png")))
        for i, figure in enumerate(report["figures"], 1)
    ]
    for i, chapter in enumerate(report["chapters"], 1):
        inner = next(folder.glob(f"{i}-*/"), folder)
        own += _figures(chapter, inner)
    return own


def small_picture(path: Path) -> bytes:
    """The picture at most WIDTH wide and LARGEST long, with as many colours as that allows."""
    from PIL import Image

    with Image.open(path) as picture:
        image = picture.convert("RGB")
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.LANCZOS)
    for colours in (256, 128, 64, 32, 16):
        stream = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
        if stream.tell() <= LARGEST:
            break
    return stream.getvalue()


def run_stale(runs: Path, folder: Path = GALLERY) -> list[str]:
    """Full runs in `runs` of what the gallery lacks or shows with other parameters; their names."""
    shown, made = stored(folder), []
    for name, module in available().items():
        fresh = name in shown and shown[name]["params"] == own_params(module)
        if fresh or _reads_data(module):
            continue
        force = ["--force"] if (runs / name / "report.html").exists() else []
        print(f"running {name}", flush=True)
        if cli.main(["-q", "run", name, "--out", str(runs / name), *force]) == 0:
            made.append(name)
    return made


def update(runs: Path, folder: Path = GALLERY) -> list[str]:
    """Take the runs found into the gallery; returns what was said about each experiment."""
    shown, said = stored(folder), []
    for name in available():
        if (runs / name / "report.json").exists():
            try:
                shown[name] = entry(name, runs / name, folder)
                said.append(f"gallery: {name}")
            except (ValueError, StopIteration, IndexError) as error:
                said.append(f"gallery: LEFT AS IT WAS, {error or name}")
    shown = {name: shown[name] for name in available() if name in shown}
    for picture in folder.glob("*.png"):
        if picture.stem not in shown:
            picture.unlink()
    text = json.dumps(shown, indent=1, ensure_ascii=False)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gallery.json").write_text(text + "\n", encoding="utf-8")
    return said


def page(shown: dict[str, dict[str, Any]]) -> str:
    experiments = available()
    parts = [
        "# Gallery",
        "One figure of each experiment, with what it found, from full runs with the default "
        "parameters. The command under a figure makes the whole report: all figures, tables, "
        "theorem checks. Parameters and what to look for: [experiments](experiments.md).",
    ]
    for chapter, group in chapters().items():
        links = " · ".join(f"[{name}](#{name.lower()})" for name in group)
        parts += [f"## {chapter}", links]
        for name in group:
            parts += _section(name, experiments[name], shown.get(name))
    return "\n\n".join(parts)


def _section(name: str, module: ModuleType, shown: dict[str, Any] | None) -> list[str]:
    given = " --set data=FILE" if _reads_data(module) else ""
    if shown and given and hasattr(module.Params, "results"):  # trained runs, made beforehand
        given += " --set results=FOLDER"
    command = f"`cynosure run {name}{given}`"
    about = f"[parameters](experiments.md#{name.lower()})"
    if shown is None and name in TO_BE_RUN:
        again = f"Changed since its last full run, which is not shown any more: {command} · {about}"
        return [f"### {name}", f"**{module.TITLE}**", again]
    if shown is None:
        needs = f"Needs data or weights that do not come with the package: {command} · {about}"
        return [f"### {name}", f"**{module.TITLE}**", needs]
    figure = shown["figure"]
    return [
        f"### {name}",
        f"**{shown['title']}**",
        f"![{figure['title']}](gallery/{name}.png)",
        f"*{figure['title']}.* {prose(figure['caption'])}",
        prose(shown["text"]),
        f"{shown['verdict']} {command} · {about}",
    ]
