"""What lives as long as the server: its processes and its runs. Nothing heavy is imported here."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from .gallery import Gallery
from .requests.bounds import BOUNDS
from .workers.pool import Pool

_GIB = 1 << 30
_OTHERS = 2.0  # seconds after which more processes are started; sooner where they are needed
_LANES = {"maths": 8 * _GIB, "transformers": 24 * _GIB, "experiments": 16 * _GIB}


@final
@dataclass(frozen=True)
class Settings:
    """What `cynosure serve` was told: models and transformers by name, folders, processes."""

    models: Mapping[str, str] = field(default_factory=dict)
    transformers: Mapping[str, str] = field(default_factory=dict)
    results: str | None = None  # reports of experiments; a temporary folder if absent
    token: str | None = None
    workers: int = 2
    embed: str | None = None  # a site that may show the page in a frame
    site: Path | None = None  # the home page of the documentation, where it was built

    def lane(self, name: str) -> dict[str, Any]:
        known = {"models": dict(self.models), "transformers": dict(self.transformers)}
        return {"lane": name, "memory": _LANES[name], **known}


@final
class Processes:
    """The processes of one server, and the runs that were started from its page."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = tempfile.TemporaryDirectory(prefix="cynosure-")
        self.maths = Pool(
            settings.lane("maths"), settings.workers, 4, int(BOUNDS["waiting_requests"]),
            quick=1, longest=float(BOUNDS["waiting_seconds"]),
        )  # fmt: skip
        # Killing one means reading its transformer anew: a client that left is no reason at once.
        self.inside = Pool(settings.lane("transformers"), 1, 1, 8, patience=20.0)
        lane = settings.lane("experiments")
        self.bench = Pool(lane, int(BOUNDS["experiments_at_once"]), 0, 16)
        results = Path(settings.results or self.folder.name)
        self.gallery = Gallery(self.bench, results, kept=settings.results is not None)

        self.others: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start the processes that are asked first."""
        self.maths.prepare()
        if self.settings.transformers:
            self.inside.prepare()

    def prepare(self) -> None:
        """Start those, and the others after some seconds that the first requests have alone."""
        self.begin()
        loop, count = asyncio.get_running_loop(), self.settings.workers + 1
        self.others = loop.call_later(_OTHERS, self.maths.prepare, count)

    async def close(self) -> None:
        """End every process; whoever still waits is told so. A second time does nothing."""
        if self.others is not None:
            self.others.cancel()
        await self.gallery.close()
        for pool in (self.maths, self.inside, self.bench):
            await pool.close()
        self.folder.cleanup()
