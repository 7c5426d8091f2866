"""_manifest.json of a bulk run: what is read, by which model and how, and the partitions. It is
written once, before the first of these; another input, model or option is refused."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from ... import __version__
from ..._files import parsed_json, read_bytes, write_atomically
from ..._files.folders import canonical, sha256
from ..._files.writing import _SCRATCH, alone
from ..bundled import find
from .cutting import Part, cut, id_type
from .files import found

FORMAT, VERSION = "cynosure-bulk", 1
MANIFEST, MODEL = "_manifest.json", "_model"
_LARGEST_MANIFEST = 256 << 20  # bytes: some million partitions

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@final
@dataclass(frozen=True)
class Task:
    """One partition, and all a worker needs to know to make it."""

    number: int
    path: str
    name: str
    part: Part
    text: str
    id: str | None
    id_type: str | None
    abstain: str | None
    model: str
    model_sha256: str
    out: str
    job: str

    @property
    def target(self) -> Path:
        return Path(self.out) / f"part-{self.number:05d}.parquet"

    @property
    def bad(self) -> Path:
        return Path(self.out) / f"_bad-{self.number:05d}.jsonl"


def refuse_foreign(folder: Path) -> None:
    """What is not ours is not touched: a free name, an empty folder, or one with our manifest."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: a file; expected the name of a folder")
    if folder.is_dir() and not (folder / MANIFEST).is_file():
        others = [name for name in sorted(os.listdir(folder)) if not _SCRATCH.fullmatch(name)]
        if others:
            raise ValueError(
                f"{folder}: holds {others[0][:100]!r} and no {MANIFEST}; choose another folder"
            )


@contextmanager
def placed(model: Any) -> Iterator[Path]:
    """The folder of the model; a fitted classifier is saved for a while."""
    if not hasattr(model, "save"):
        yield Path(os.path.realpath(find(model)))
        return
    with tempfile.TemporaryDirectory() as folder:
        yield model.save(Path(folder) / MODEL)


def fingerprint(model: Path) -> str:
    """Of model.json, which has the checksums of the other files."""
    try:
        return sha256(read_bytes(model / "model.json", 16 << 20))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{model}: no model here; expected a folder with model.json") from None


def begun(out: Path, source: Paths, model: str, options: dict[str, Any]) -> tuple[Path, Any]:
    """(folder of the input, manifest): the one that is there, or one written now."""
    root, names = found(source, out)
    asked = {
        "format": FORMAT, "version": VERSION, "cynosure": __version__, "model": model,
        "options": options, "files": {name: _identity(root / name) for name in names},
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    with alone(out, patience=3600.0):  # of two that begin at once the second reads the first's
        if not (out / MANIFEST).is_file():
            _begin(out, root, names, asked)
    return root, _manifest(out, asked)


def _begin(out: Path, root: Path, names: Sequence[str], asked: dict[str, Any]) -> None:
    """Cut the input into partitions and write the manifest."""
    options = asked["options"]
    parts = cut(root, names, options["rows"], options["text"], options["id"])
    ids = id_type(root, names, options["id"])
    manifest = {**asked, "id_type": ids, "parts": [list(part) for part in parts]}
    whole = json.dumps({**manifest, "checksum": sha256(canonical(manifest))}).encode()
    write_atomically(out / MANIFEST, lambda stream: stream.write(whole))


def kept(model: Path, target: Path) -> Path:
    """The model of a fitted classifier, where the workers find it."""
    from ..model.model import FOLDER, VERSION

    if not target.is_dir():
        header, files = FOLDER.load(model, VERSION)
        FOLDER.save(target, files, header)
    return target


def tasks_of(out: Path, root: Path, manifest: dict[str, Any], model: Path) -> list[Task]:
    names, job = sorted(manifest["files"]), sha256(canonical(manifest))
    how = {name: manifest["options"][name] for name in ("text", "id", "abstain")}
    how |= {"id_type": manifest["id_type"], "model_sha256": manifest["model"], "job": job}
    return [
        Task(number=number, path=str(root / names[part.file]), name=names[part.file], part=part,
             model=str(model), out=str(out), **how)
        for number, part in enumerate(Part(*part) for part in manifest["parts"])
    ]  # fmt: skip


def _identity(path: Path) -> list[int]:
    """Size and time of change: a file with both the same is taken for the same."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _manifest(out: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a folder that was made from the same model, input and options."""
    file = out / MANIFEST
    try:
        have = parsed_json(read_bytes(file, _LARGEST_MANIFEST), str(file), _LARGEST_MANIFEST)
        stated = have.pop("checksum")
        if stated != sha256(canonical(have)) or have["format"] != FORMAT:
            raise ValueError("its checksum is another")
        differs = list(_differences(have, asked))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: not as it was written ({str(error)[:200]})") from None
    if differs:
        raise ValueError(
            f"{out}: was begun with {'; '.join(differs[:3])}; choose another folder, or resume as "
            "it was begun"
        )
    return have


def _differences(have: dict[str, Any], asked: dict[str, Any]) -> Iterator[str]:
    for name in ("version", "cynosure"):
        if have[name] != asked[name]:
            yield f"{name} {have[name]!r}, not {asked[name]!r}"
    if have["model"] != asked["model"]:
        yield "another model"
    for name, value in asked["options"].items():
        if have["options"][name] != value:
            yield f"{name}={have['options'][name]!r}, not {value!r}"
    before, now = have["files"], asked["files"]
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            gone = "is gone" if name not in now else "has changed"
            what = "was not there" if name not in before else gone
            yield f"other files: {name[:100]!r} {what}"
