"""Memory: what a model or a trace will take, compared with what is free before it is begun."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def available() -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None


def require(needed: int, what: str, advice: str) -> None:
    """Refuse what cannot fit: a system that lends more than it has ends the process later."""
    free = available()
    if free is not None and needed > free:
        raise MemoryError(
            f"{what} takes about {in_words(needed)}, and {in_words(free)} are free; {advice}"
        )


@contextlib.contextmanager
def told(advice: str) -> Iterator[None]:
    """torch out of memory, on any device, as a MemoryError in one line."""
    try:
        yield
    except RuntimeError as error:
        said = str(error).splitlines()[0]
        if "out of memory" not in said and "can't allocate memory" not in said:
            raise
        raise MemoryError(f"{said[:160]}; {advice}") from None


def in_words(count: int) -> str:
    """1.5 GB, 30 MB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
