"""The gallery: one figure of each experiment, taken from full runs and stored in docs/gallery/.

times.json says how much processor time a run took, as `timed` measured it.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict, fields
from pathlib import Path
from time import process_time
from types import ModuleType
from typing import Any

from _markdown import prose
from cynosure import cli
from cynosure.catalogue import available, chapters
from cynosure.drawing.report import jsonable

GALLERY = Path(__file__).resolve().parent / "gallery"
PACKAGED = GALLERY.parents[1] / "src" / "cynosure" / "figures" / "pictures"
TELLING = {
    "head_flow": 3,
    "reviews_explained": 3,
    "sentiment_paper": 4,
}  # the figure, if not the first
LARGEST = 90_000  # bytes of a picture
WIDTH = 900  # pixels


# Experiments that changed since their last full run, or whose controls refuted it: shown again once
# they have been run in full.
TO_BE_RUN: tuple[str, ...] = (
    "block_coupling",
    "certified_lifetime",
    "gaussian_rules",
    "lost_in_the_middle",
)


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
    more = []
    for k, chapter in enumerate(report["chapters"] if "questions" in params else (), 1):
        other, path = _figures(chapter, next((folder / "data").glob(f"{k}-*/")))[0]
        if k > 1:  # the first is that of the study
            (pictures / f"{name}-{k}.png").write_bytes(small_picture(path))
            more.append({"title": chapter["title"], "figure": other, "text": _finding(chapter)})
    return {
        "title": report["title"],
        "figure": figure,
        "text": _finding(report),
        "verdict": report["verdict"],
        "params": params,
        "version": report["version"],
        **({"more": more} if more else {}),
    }


def pictures_of(name: str, shown: dict[str, Any]) -> list[str]:
    """The names of the pictures of a study: its own, and one for each further question."""
    return [name, *(f"{name}-{k}" for k, _ in enumerate(shown.get("more", ()), 2))]


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


def small_picture(path: Path, width: int = WIDTH, largest: int = LARGEST) -> bytes:
    """The picture at most `width` wide and `largest` long, with as many colours as that allows."""
    from PIL import Image

    with Image.open(path) as picture:
        image = picture.convert("RGB")
    if image.width > width:
        image = image.resize((width, round(image.height * width / image.width)), Image.LANCZOS)
    for colours in (256, 128, 64, 32, 16):
        stream = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
        if stream.tell() <= largest:
            break
    return stream.getvalue()


def timed(name: str, out: Path, *options: str) -> int:
    """Run a study as the command line does; a run from the beginning leaves OUT/time.json."""
    fresh, began = not (out / "measured").exists() or "--force" in options, process_time()
    code = cli.main(["-q", "run", name, "--out", str(out), *options])
    if code == 0 and fresh:
        spent = {"quick" if "--quick" in options else "full": round(process_time() - began, 1)}
        out.mkdir(parents=True, exist_ok=True)
        (out / "time.json").write_text(json.dumps(spent) + "\n", encoding="utf-8")
    return code


def times(folder: Path = GALLERY) -> dict[str, dict[str, float]]:
    """Name -> seconds of processor time of its full run, of its quick one, as far as known."""
    path = folder / "times.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _lasting(name: str, folder: Path = GALLERY) -> str:
    """How long a study takes, for a reader who thinks of running it."""
    spent = times(folder).get(name, {})
    kind = "full" if "full" in spent else "quick"
    if kind not in spent:
        return ""
    seconds = spent[kind]
    told = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(1, round(seconds))} s"
    option = " with `--quick`" if kind == "quick" else ""
    return f" · {told} of processor time{option}"


def run_stale(runs: Path, folder: Path = GALLERY) -> list[str]:
    """Full runs in `runs` of what the gallery lacks or shows with other parameters; their names."""
    shown, made = stored(folder), []
    for name, module in available().items():
        fresh = name in shown and shown[name]["params"] == own_params(module)
        if fresh or _reads_data(module):
            continue
        force = ["--force"] if (runs / name / "report.html").exists() else []
        print(f"running {name}", flush=True)
        if timed(name, runs / name, *force) == 0:
            made.append(name)
    return made


def update(runs: Path, folder: Path = GALLERY) -> list[str]:
    """Take the runs found into the gallery; returns what was said about each experiment."""
    shown, said, spent = stored(folder), [], times(folder)
    for name in available():
        if (runs / name / "time.json").exists():
            found = json.loads((runs / name / "time.json").read_text(encoding="utf-8"))
            spent[name] = {**spent.get(name, {}), **found}
        if (runs / name / "report.json").exists():
            try:
                shown[name] = entry(name, runs / name, folder)
                said.append(f"gallery: {name}")
            except (ValueError, StopIteration, IndexError) as error:
                said.append(f"gallery: LEFT AS IT WAS, {error or name}")
    shown = {name: shown[name] for name in available() if name in shown}
    known = {stem for name, one in shown.items() for stem in pictures_of(name, one)}
    for picture in folder.glob("*.png"):
        if picture.stem not in known:
            picture.unlink()
    if folder == GALLERY:
        package(shown)
    folder.mkdir(parents=True, exist_ok=True)
    for file, what in (("gallery.json", shown), ("times.json", dict(sorted(spent.items())))):
        text = json.dumps(what, indent=1, ensure_ascii=False)
        (folder / file).write_text(text + "\n", encoding="utf-8")
    return said


def package(shown: dict[str, Any], folder: Path = PACKAGED) -> None:
    """Small pictures of the studies that are installed with the package, for its page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in shown:
        if available()[name].__name__.startswith("cynosure.figures."):
            small = small_picture(GALLERY / f"{name}.png", width=600, largest=45_000)
            (folder / f"{name}.png").write_bytes(small)


def page(shown: dict[str, dict[str, Any]]) -> str:
    experiments = available()
    parts = [
        "# Gallery",
        "One figure of each experiment, with what it found, from full runs with the default "
        "parameters. The command under a figure makes the whole report: all figures, tables, "
        "theorem checks. Parameters and what to look for: [experiments](reference/studies.md).",
    ]
    for chapter, group in chapters().items():
        cards = [_card(name, experiments[name], name in shown) for name in group]
        parts += [f"## {chapter}", "\n".join(["::::{grid} 2 3 3 4", ":gutter: 2", *cards, "::::"])]
        for name in group:
            parts += _section(name, experiments[name], shown.get(name))
    return "\n\n".join(parts)


def _card(name: str, module: ModuleType, drawn: bool) -> str:
    """A small picture that leads to the section of a study."""
    picture = [f":img-top: gallery/{name}.png"] if drawn else []
    look = [
        *picture,
        f":link: gallery.html#{name.lower()}",
        ":link-type: url",
        ":class-card: gallery-card",
    ]
    return "\n".join([f":::{{grid-item-card}} {name}", *look, "", module.TITLE, ":::"])


def _section(name: str, module: ModuleType, shown: dict[str, Any] | None) -> list[str]:
    given = " --set data=FILE" if _reads_data(module) else ""
    command = f"`cynosure run {name}{given}`"
    about = f"[parameters](reference/studies.md#{name.lower()}){_lasting(name)}"
    if shown is None and name in TO_BE_RUN:
        again = f"Changed since its last full run, which is not shown any more: {command} · {about}"
        return [f"### {name}", f"**{module.TITLE}**", again]
    if shown is None:
        needs = f"Needs data or weights that do not come with the package: {command} · {about}"
        return [f"### {name}", f"**{module.TITLE}**", needs]
    parts = [f"### {name}"]
    for stem, one in zip(pictures_of(name, shown), [shown, *shown.get("more", ())]):
        figure = one["figure"]
        parts += [
            f"**{one['title']}**",
            f"![{figure['title']}](gallery/{stem}.png)",
            f"*{figure['title']}.* {prose(figure['caption'])}",
            prose(one["text"]),
        ]
    return [
        *parts,
        f"{shown['verdict']} {command} · {about}",
    ]
