"""One file, whole or not at all, whatever fails and whenever the process is killed.

The bytes go to a temporary file beside the target, are forced to the disk, and take the target's
place in one rename. A kill can leave the temporary. Its name says which process of which machine
wrote it, and the next save into that folder removes those whose writer is gone.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

# .cynosure-<machine>-<process>-<random>.tmp: short, whatever the target is called
_SCRATCH = re.compile(r"\.cynosure-([0-9a-f]{8})-(\d{1,10})-([0-9a-f]{16})\.tmp")
ABANDONED = 24 * 3600.0  # seconds; nobody writes one file for a day
_LOCKS: Any = import_module("fcntl") if os.name == "posix" else None  # Windows locks no folder
_IN_USE: set[str] = set()  # those this process is writing now


def write_atomically(path: str | os.PathLike[str], write: Any) -> Path:
    """Call write(stream) on a temporary file beside `path`, then put it in place in one step.

    A symbolic link stays one, and the file it names is replaced. A pipe or a device, or a link to
    one, is written to and stays what it is; a folder or a disk is refused.
    """
    if is_stream(path):
        whole = io.BytesIO()  # formats of archives go back in what they write, a pipe cannot
        write(whole)
        try:
            with open(path, "wb") as stream:
                stream.write(whole.getbuffer())
        except BrokenPipeError:
            raise ValueError(f"{path}: the reader of this pipe left before the end") from None
        except OSError as error:  # a full device says no name
            raise OSError(error.errno, error.strerror, str(path)) from error
        return Path(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{path}: expected the name of a file; this is a folder, disk or socket")
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    put(target, write)
    return Path(path)


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether a pipe or a device of characters is there, which nothing may take the place of."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def put(target: Path, write: Any) -> None:
    """`write_atomically` into a folder that is there, whose leftovers somebody else removes."""
    with scratch(target.parent) as name:
        try:
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
            with os.fdopen(handle, "wb") as stream:
                write(stream)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(name, target)
        except OSError as error:  # a full disk: say of which file, by the name people know
            if error.errno and error.filename in (None, str(name), name):
                raise OSError(error.errno, error.strerror, str(target)) from error
            raise
    force_to_disk(target.parent)


_BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate line ends


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A name in `folder` for what is not finished; what is there at the end is removed."""
    path = folder / f".cynosure-{_machine()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    _IN_USE.add(path.name)
    try:
        yield path
    finally:
        _IN_USE.discard(path.name)
        with suppress(OSError):  # a failure that brought us here is the one to report
            _remove(path)


@contextmanager
def alone(folder: Path, patience: float = 60.0) -> Iterator[bool]:
    """A lock of the folder, which the system takes back from a process that is killed.

    Raises TimeoutError when another has it for more than `patience` seconds. Gives False where the
    system cannot lock a folder: Windows, some network disks.
    """
    if _LOCKS is None:
        yield False
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        locked = _locked(handle, folder, patience)
        try:
            yield locked
        finally:
            if locked:  # here, for a process that was forked meanwhile has the handle as well
                _LOCKS.flock(handle, _LOCKS.LOCK_UN)
    finally:
        with suppress(OSError):
            os.close(handle)


def _locked(handle: int, folder: Path, patience: float) -> bool:
    until, pause = time.monotonic() + patience, 0.001
    while True:
        try:
            _LOCKS.flock(handle, _LOCKS.LOCK_EX | _LOCKS.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"{folder}: another process is writing into it; let it end, or choose another "
                    "folder"
                ) from None
        except OSError:  # this disk knows no locks
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def sweep(folder: Path) -> None:
    """Remove the temporaries in `folder` whose writer is gone: killed, or silent for a day."""
    with suppress(OSError):
        for path in list(_abandoned(folder)):
            _remove(path)


def _abandoned(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            match = _SCRATCH.fullmatch(entry.name)
            if match is None or entry.name in _IN_USE or entry.is_symlink():
                continue
            here = match[1] == _machine()
            silent = time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED
            if silent or (here and not _alive(int(match[2]))):
                yield Path(entry.path)


def _alive(process: int) -> bool:
    """Whether that process runs here; this one has no temporary outside `_IN_USE`."""
    if process == os.getpid():
        return False
    if os.name == "posix":  # elsewhere os.kill would end it: wait until it was silent for long
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            pass
    return True


def _machine() -> str:
    """A name of this machine, since process numbers are each machine's own."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _remove(path: Path) -> None:
    """Remove a temporary: a file, or a folder with all that is below it."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def force_to_disk(path: Path) -> None:
    """Force a folder's names to the disk where the system can; the names are right either way."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
