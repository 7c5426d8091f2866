"""Compiled loops, kept between programs: where they are stored, and who compiles them.

Numba is imported by the first input that is large enough to pay for it (`load`); until then small
inputs take a plain way with the same answer (`spare`). What is compiled is stored in a folder named
after the contents of the kernels: an upgrade that leaves them alone leaves it valid. The folder is
that of NUMBA_CACHE_DIR, or of the user, or of the package, or a temporary one. No deadline runs
while something is compiled, and of two programs that start together one waits for the other.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import FunctionType, ModuleType
from typing import Any, final

from ._deadline import not_counted

HOMES = "engine", "classifier"  # the packages with a folder of kernels
_PACKAGE = Path(__file__).parent
_LOCK = RLock()
_READY: set[str] = set()  # modules that are imported, and compiled for the usual types
_MOST, _TOTAL = 150_000_000, 500_000_000  # nanoseconds of plain work: of one call, of a program
_STORED = 0.05  # the share of these once numba is there and only has to read what is stored
_CALL = 50_000  # nanoseconds of a plain call on a small input


@final
class _Spent:
    """Nanoseconds of plain work that this program has done instead of compiling; who compiles."""

    plain = 0.0
    compiling = 0  # threads that compile now


_TOLD: list[Callable[[bool], None]] = []  # who is told that compiling begins and ends


def compiling() -> bool:
    """True while a kernel is compiled, which takes seconds."""
    return _Spent.compiling > 0


def tell(hear: Callable[[bool], None]) -> None:
    """Call hear(True) when this program begins to compile, hear(False) when it has ended."""
    _TOLD.append(hear)


@contextmanager
def _told() -> Iterator[None]:
    """Inside, this program is compiling: it says so, and no deadline runs."""
    _count(1)
    try:
        with not_counted():
            yield
    finally:
        _count(-1)


def _count(threads: int) -> None:
    with _LOCK:
        before, _Spent.compiling = _Spent.compiling, _Spent.compiling + threads
        if not before or not _Spent.compiling:
            for hear in _TOLD:
                hear(not before)


def spare(nanoseconds: float, module: str, most: float = 1.0) -> bool:
    """True while work of about so many nanoseconds is done sooner without the kernels of `module`.

    What the plain way has cost so far is counted, not timed. `most` multiplies what is allowed
    until kernels are compiled for which that takes longer.
    """
    if module in _READY:
        return False
    if (most > 1.0 or _READY) and compiled_before(module):
        most = _STORED if _READY else 1.0
    wanted = _Spent.plain + nanoseconds
    if nanoseconds > most * _MOST or wanted > most * _TOTAL:
        return False
    if _Spent.plain == 0.0 and "ipykernel" in sys.modules:  # a notebook: larger inputs will come
        warm_elsewhere()
    _Spent.plain = wanted
    return True


@cache
def compiled_before(module: str) -> bool:
    """True if a program on this machine has compiled the module, as far as file names tell."""
    home = stored_in(module.partition(".")[0])
    return home is not None and next(home.glob(f"{module}.*.ready"), None) is not None


def jitted(**options: Any) -> Callable[[Any], Any]:
    """The decorator of a kernel: numba.njit that stores what it compiled, without the GIL."""
    from numba import njit

    _prepare()
    return njit(cache=_folder_there(), nogil=True, **options)


def loaded(module: str) -> bool:
    """True once `load` has been asked for this module."""
    return module in _READY


def load(module: str) -> ModuleType:
    """A module of kernels of this package, "engine.kernels.planar", compiled.

    Its function `warm()` calls each of its kernels with the usual types.
    """
    found = sys.modules.get(f"cynosure.{module}")
    if found is not None and module in _READY:
        return found
    with _LOCK, not_counted():
        found = import_module(f"cynosure.{module}")
        if module not in _READY:
            home = stored_in(module.partition(".")[0])
            mark = None if home is None else home / f"{module}.{_machine()}.ready"
            _activate(found)
            if mark is None or not mark.exists():
                with _told(), _alone(home):
                    found.warm()
                with suppress(OSError):
                    if mark is not None:
                        mark.touch()
            _READY.add(module)
    return found


def warm(progress: Callable[[float, str], None] | None = None) -> list[str]:
    """Compile every kernel for this processor, or find it compiled; the modules in order."""
    names = [
        f"{home}.kernels.{path.stem}"
        for home in HOMES
        for path in sorted((_PACKAGE / home / "kernels").glob("*.py"))
        if "def warm(" in path.read_text(encoding="utf-8")
    ]
    names.sort(key=lambda name: name == "engine.kernels.batch")  # by far the longest
    for done, name in enumerate(names):
        if progress is not None:
            progress(done / len(names), name)
        load(name)
    return names


def warm_elsewhere() -> subprocess.Popen[bytes] | None:
    """Start `cynosure warm` in a process of low priority; None where nothing can be stored."""
    if any(stored_in(home) is None for home in HOMES):
        return None
    line, none = (
        [sys.executable, "-m", "cynosure", "-q", "warm", "--background"],
        subprocess.DEVNULL,
    )
    try:
        process = subprocess.Popen(line, stdin=none, stdout=none, stderr=none)
    except OSError:  # no interpreter to start, or no process left: the first large input compiles
        return None
    atexit.register(process.terminate)
    return process


# -- kernels that are Python too ----------------------------------------------------------------

_FUNCTIONS: dict[str, list[Any]] = {}  # module -> its functions and kernels
_COMPILED: dict[Any, Any] = {}  # function or kernel -> what numba made of it


@final
class Kernel:
    """A loop over an input: compiled for large ones, and in NumPy (`plain`) for small ones.

    An input is as large as its argument number `by` is long, at so many nanoseconds an entry in
    NumPy. Where `plain` is missing, or returns None, the loop runs as it stands.
    """

    def __init__(
        self, loop: Callable[..., Any], by: int, cost: float, plain: Callable[..., Any] | None
    ) -> None:
        self.loop, self.by, self.cost, self.plain = loop, by, cost, plain
        self.compiled: Any = None
        self.__doc__, self.__name__ = loop.__doc__, loop.__name__

    def __call__(self, *args: Any) -> Any:
        if self.compiled is None:
            module = self.loop.__module__.removeprefix("cynosure.")
            if spare(_CALL + self.cost * len(args[self.by]), module):
                found = None if self.plain is None else self.plain(*args)
                return self.slow(*args) if found is None else found
            load(module)
        return self.compiled(*args)

    def slow(self, *args: Any) -> Any:
        """The loop as it stands."""
        import numpy as np

        with np.errstate(over="ignore"):  # hashes are modulo 2^64
            return self.loop(*args)


def kernel(
    by: int | None = None, cost: float = 0.0, plain: Callable[..., Any] | None = None
) -> Callable[[Any], Any]:
    """The decorator of a `Kernel`; without `by`, of a function that only kernels call."""

    def mark(function: Any) -> Any:
        found = function if by is None else Kernel(function, by, cost, plain)
        _FUNCTIONS.setdefault(function.__module__, []).append(found)
        return found

    return mark


def _activate(module: ModuleType) -> None:
    """Compile the functions of a module for its kernels, in names of their own.

    A loop that runs as it stands in another thread keeps calling functions as they stand.
    """
    names = dict(vars(module))
    for name, value in vars(module).items():
        home = getattr(getattr(value, "loop", value), "__module__", None)
        if home != module.__name__ and value in _FUNCTIONS.get(home or "", ()):
            load(str(home).removeprefix("cynosure."))
            names[name] = _COMPILED[value]
    for value in _FUNCTIONS.get(module.__name__, ()):
        loop = getattr(value, "loop", value)
        same = FunctionType(loop.__code__, names, loop.__name__, loop.__defaults__)
        names[loop.__name__] = _COMPILED[value] = jitted()(same)
        if isinstance(value, Kernel):
            value.compiled = _COMPILED[value]


# -- where ------------------------------------------------------------------------------------


@cache
def stored_in(home: str) -> Path | None:
    """The folder for the kernels of `home`, named after their contents; None where none can be."""
    name = f"{home}-{_contents(home)}"
    for root in _roots():
        folder = root / name
        with suppress(OSError):
            if (folder / "complete").exists() or _writable(folder):
                return folder
    return None


def _contents(home: str) -> str:
    """A hash of all kernels of `home`: one may be compiled into another."""
    digest = hashlib.sha256()
    for path in sorted((_PACKAGE / home / "kernels").glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def _machine() -> str:
    """What compiled code depends on beside its source."""
    import numba
    from llvmlite import binding

    try:
        features = binding.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM does not know them everywhere
        features = ""
    told = f"{sys.version} {numba.__version__} {binding.get_host_cpu_name()} {features}"
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def _roots() -> Iterator[Path]:
    """Folders for compiled kernels, the best first."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(given)
    with suppress(RuntimeError):  # no home folder
        yield _users() / "cynosure"
    yield _PACKAGE / "__pycache__"
    with suppress(OSError):
        yield _temporary()


def _users() -> Path:
    """The user's folder for caches."""
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def _temporary() -> Path:
    """A folder among the temporary files that nobody else can write to: code is read from it."""
    if hasattr(os, "getuid"):
        folder = Path(tempfile.gettempdir()) / f"cynosure-kernels-{os.getuid()}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o77:
            return folder
    kept = tempfile.TemporaryDirectory(prefix="cynosure-kernels-", ignore_cleanup_errors=True)
    atexit.register(kept.cleanup)
    return Path(kept.name)


def _writable(folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return True


def _folder_there() -> bool:
    return all(stored_in(home) is not None for home in HOMES)


# -- numba ------------------------------------------------------------------------------------


@cache
def _prepare() -> None:
    """Tell numba where our kernels are stored, and stop our clocks while it compiles anything."""
    from numba.core import caching, event

    class Locator(caching._CacheLocator):
        """Stored kernels are valid as long as no kernel beside them changes."""

        def __init__(self, function: Any, folder: Path) -> None:
            self._line, self._folder = function.__code__.co_firstlineno, folder

        def get_cache_path(self) -> str:
            return str(self._folder)

        def get_source_stamp(self) -> str:
            return self._folder.name

        def get_disambiguator(self) -> str:
            return str(self._line)

        @classmethod
        def from_function(cls, function: Any, path: str) -> Any:
            there = Path(path)
            home = there.parent.parent
            ours = there.parent.name == "kernels" and home.parent == _PACKAGE
            folder = stored_in(home.name) if ours and home.name in HOMES else None
            return None if folder is None else cls(function, folder)

    kinds = caching.CompileResultCacheImpl
    kinds._locator_classes = [Locator, *kinds._locator_classes]

    class Paused(event.Listener):
        def __init__(self) -> None:
            self._open: list[ExitStack] = []

        def on_start(self, event: Any) -> None:
            stack = ExitStack()
            stack.enter_context(_told())
            self._open.append(stack)

        def on_end(self, event: Any) -> None:
            self._open.pop().close()

    event.register("numba:compile", Paused())


_HELD: list[Path] = []  # folders that this program has to itself


@contextmanager
def _alone(folder: Path | None) -> Iterator[None]:
    """Inside, no other program compiles into this folder; where that cannot be, it goes on."""
    with ExitStack() as stack:
        with suppress(OSError, ImportError):
            import fcntl

            if folder is not None and folder not in _HELD:
                file = stack.enter_context((folder / "lock").open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)  # freed with the file, also by a kill
                _HELD.append(folder)
                stack.callback(_HELD.remove, folder)
        yield
