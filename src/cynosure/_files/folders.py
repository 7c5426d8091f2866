"""A folder that is ours: one manifest and the files it names, replaced whole or not at all.

The manifest is JSON with `format` (whose folder it is) and `sha256` (file name -> checksum). To
replace a folder, each new file is written under a name with its checksum, such as
`model.safetensors.0123456789abcdef`. Then the manifest is replaced in one rename, and each new file
takes its plain name. A reader takes the plain file if it has the checksum that the manifest states,
else the one named by that checksum. So one rename makes the old folder the new one, and a link or a
mount point can be the target.

Two writers take turns under a lock of the folder. Where there are no locks nothing moves to its
plain name, and a marked file is removed after a day: no file that a manifest names is overwritten.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from .bounded import parsed_json, read_bytes
from .writing import _SCRATCH, ABANDONED, alone, force_to_disk, put, scratch, sweep

_LARGEST_MANIFEST = 16 << 20  # bytes


@final
@dataclass(frozen=True)
class Folder:
    """The kind of folder: its manifest's name, the format it states, and the files beside it."""

    what: str  # for messages: "a cynosure model"
    writer: str  # for messages: "HardmaxClassifier.save"
    format: str
    manifest: str
    files: tuple[str, ...]

    def refuse_foreign(self, path: str | os.PathLike[str]) -> None:
        """Raise ValueError unless `path` is free, or a folder of this kind and no more."""
        folder = Path(os.path.realpath(path))
        if not os.path.lexists(folder):
            return
        file, header = folder / self.manifest, None
        # what may not be read is another matter: the system says what
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
            header = parsed_json(read_bytes(file, _LARGEST_MANIFEST), str(file))
        if not isinstance(header, dict) or header.get("format") != self.format:
            raise ValueError(f"{path}: exists and is not {self.what}; choose another folder")
        if others := sorted(name for name in os.listdir(folder) if not self._may_hold(name)):
            found = f"{path}: holds {others[0]!r}, which is no part of {self.what}"
            raise ValueError(f"{found}; move it away or choose another folder")

    def save(
        self, path: str | os.PathLike[str], files: Mapping[str, bytes], header: Mapping[str, Any]
    ) -> Path:
        """Write `files` and the manifest, `header` with checksums; a failure changes nothing."""
        self.refuse_foreign(path)
        folder = Path(os.path.realpath(path))
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder.parent)
        stated = {**header, "sha256": {name: sha256(data) for name, data in files.items()}}
        stated["checksum"] = sha256(canonical(stated))
        manifest = json.dumps(stated, indent=1, ensure_ascii=False).encode()
        if not (folder / self.manifest).is_file():
            try:
                self._create(folder, {**files, self.manifest: manifest})
                return Path(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            self.refuse_foreign(path)  # somebody else has made a folder meanwhile
        with alone(folder) as locked:
            self._replace(folder, files, manifest, locked)
        return Path(path)

    def _create(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """A folder that was not there: made beside and renamed."""
        with scratch(folder.parent) as new:
            os.mkdir(new)
            for name, data in files.items():
                with open(new / name, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
            force_to_disk(new)
            os.rename(new, folder)
        force_to_disk(folder.parent)

    def _replace(
        self, folder: Path, files: Mapping[str, bytes], manifest: bytes, locked: bool
    ) -> None:
        sweep(folder)
        before = set(os.listdir(folder))
        marked = {name: folder / f"{name}.{sha256(data)[:16]}" for name, data in files.items()}
        try:
            for name, data in files.items():
                put(marked[name], lambda stream, data=data: stream.write(data))
            put(folder / self.manifest, lambda stream: stream.write(manifest))
        except BaseException:
            for file in marked.values():  # not those of the folder as it was
                if locked and file.name not in before:
                    with suppress(OSError):
                        os.unlink(file)
            raise
        with suppress(OSError):  # the new folder is whole already; the next save tidies up
            for name, file in marked.items():
                if locked:
                    os.replace(file, folder / name)
            for left in filter(self._is_marked, os.listdir(folder)):
                old = time.time() - os.stat(folder / left).st_mtime > ABANDONED
                if locked or (old and left not in {file.name for file in marked.values()}):
                    os.unlink(folder / left)
            force_to_disk(folder)

    def load(self, path: str | os.PathLike[str], newest: int) -> tuple[dict[str, Any], dict]:
        """(manifest, content of each file), every byte as its checksum says."""
        try:
            return self._load(Path(path), newest)
        except _Moved:  # a writer was faster: the next ones wait until all is read
            with alone(Path(path)):
                return self._load(Path(path), newest)

    def _load(self, folder: Path, newest: int) -> tuple[dict[str, Any], dict]:
        manifest = folder / self.manifest
        if not manifest.is_file():
            raise FileNotFoundError(
                f"{folder}: no {self.what.split()[-1]} here; expected a folder with {self.manifest}"
            )
        text = read_bytes(manifest, _LARGEST_MANIFEST)
        header = self._header(folder, text, newest)
        data = {}
        for name in self.files:
            found = self._content(folder, name, header["sha256"].get(name))
            if found is None:
                if read_bytes(manifest, _LARGEST_MANIFEST) != text:
                    raise _Moved(f"{folder}: is being written; try again")
                missing = "was changed or cut short" if (folder / name).is_file() else "is missing"
                raise self.refused(folder, f"{name} {missing}")
            data[name] = found
        return header, data

    def _header(self, folder: Path, text: bytes, newest: int) -> dict[str, Any]:
        try:
            header = parsed_json(text, str(folder / self.manifest))
            kind, version, stated = header["format"], header["version"], header.pop("checksum")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self.refused(folder, f"{self.manifest} is not readable") from None
        if kind != self.format:
            raise self.refused(folder, f"it is a {kind!r}")
        if type(version) is not int or version < 1:
            raise self.refused(folder, f"{self.manifest} has no version")
        if version > newest:
            found = f"written by a newer cynosure (format {version}, this one reads {newest})"
            raise ValueError(f"{folder}: {found}; upgrade with `pip install -U cynosure`")
        if stated != sha256(canonical(header)):
            raise self.refused(folder, f"{self.manifest} was changed")
        if not isinstance(header.get("sha256"), dict):
            raise self.refused(folder, f"{self.manifest} states no checksums")
        return header

    def _content(self, folder: Path, name: str, stated: object) -> bytes | None:
        """The bytes of the file with that checksum, under its plain name or marked by it."""
        if not isinstance(stated, str):
            return None
        # the plain name last as well: a writer may have moved the marked file there meanwhile
        for file in (name, f"{name}.{stated[:16]}", name):
            if not self._may_hold(file):
                continue
            with suppress(FileNotFoundError, NotADirectoryError):
                data = (folder / file).read_bytes()
                if sha256(data) == stated:
                    return data
        return None

    def refused(self, path: Path, why: str) -> ValueError:
        """What to raise for a folder that is damaged, edited or not of this kind."""
        expected = f"expected a folder written by {self.writer}, copy it again"
        return ValueError(f"{path}: {why}; {expected}")

    def _may_hold(self, name: str) -> bool:
        own = name in (self.manifest, *self.files)
        return own or self._is_marked(name) or bool(_SCRATCH.fullmatch(name))

    def _is_marked(self, name: str) -> bool:
        plain, _, mark = name.rpartition(".")
        return plain in self.files and re.fullmatch("[0-9a-f]{16}", mark) is not None


class _Moved(ValueError):
    """The folder was replaced while it was read."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def canonical(header: Mapping[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True, ensure_ascii=False).encode()
