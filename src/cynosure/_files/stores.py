"""Folders of zarr: they appear whole, and each of their files is replaced whole or not at all."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .writing import put, scratch, sweep


def whole(folder: Path) -> Any:
    """A folder of zarr whose files are forced to the disk and put in place in one rename."""
    from zarr.storage import LocalStore

    class Whole(LocalStore):
        async def _set(self, key: str, value: Any, exclusive: bool = False) -> None:
            path = self.root / key

            def write() -> None:
                if exclusive and path.exists():
                    raise FileExistsError(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                put(path, lambda stream: stream.write(value.to_bytes()))

            await asyncio.to_thread(write)

    return Whole(folder)


@contextmanager
def appearing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to fill, which then takes its place in one rename, unless one is there."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    with scratch(target.parent) as new:
        yield new
        try:
            os.rename(new, target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise


@contextmanager
def readable(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """In the block zarr or xarray reads a store: what they cannot read is said to be damaged."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        why = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        said = f"{path}: is damaged ({why}); copy it again, or take another folder"
        raise ValueError(said) from error
