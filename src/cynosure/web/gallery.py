"""Runs of experiments that were started from the page: progress, cancelling, reports kept."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, final

from .requests.bounds import BOUNDS
from .requests.problems import Refusal
from .workers.pool import Pool

_ENDED = ("done", "failed", "cancelled")
_ID = re.compile(r"[\w]+-[0-9a-f]{8}")


@final
class _Run:
    """One run: its state, who waits for its news, and whether it is still wanted."""

    def __init__(self, name: str) -> None:
        self.id, self.wanted = f"{name}-{secrets.token_hex(4)}", True
        self.state: dict[str, Any] = {"id": self.id, "name": name, "state": "waiting"}
        self.state |= {"done": 0.0, "what": ""}
        self.changed = asyncio.Condition()
        self.task: asyncio.Task[None] | None = None

    async def say(self, **news: Any) -> None:
        async with self.changed:
            self.state |= news
            self.changed.notify_all()

    @property
    def ended(self) -> bool:
        return self.state["state"] in _ENDED


@final
class Gallery:
    """The runs of one server, each in a folder below `folder`; `kept` folders are never removed."""

    def __init__(self, pool: Pool, folder: Path, kept: bool) -> None:
        self.pool, self.folder, self.kept = pool, folder, kept
        self.runs: dict[str, _Run] = {}

    def start(self, name: str, quick: bool, params: dict[str, Any]) -> dict[str, Any]:
        open_ = [run for run in self.runs.values() if not run.ended]
        if len(open_) >= 4 * int(BOUNDS["experiments_at_once"]):
            raise Refusal(503, f"{len(open_)} experiments are running or waiting; cancel one")
        run = _Run(name)
        self.runs[run.id] = run
        asked = {"name": name, "quick": quick, "params": params}
        asked["folder"] = str(self.folder / run.id)
        run.task = asyncio.create_task(self._go(run, asked))
        self._forget()
        return dict(run.state)

    async def _go(self, run: _Run, asked: dict[str, Any]) -> None:
        async def gone() -> bool:
            return not run.wanted

        def tell(said: dict[str, Any]) -> None:
            news.put_nowait({"state": "running", **said})

        async def pass_on() -> None:
            while True:
                await run.say(**await news.get())

        news: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        teller = asyncio.create_task(pass_on())
        try:
            seconds = float(BOUNDS["experiment_seconds"])
            answer = await self.pool.run("run", asked, seconds, gone, tell)
            end = {"state": "done", "done": 1.0, "what": "", **json.loads(bytes(answer.body))}
            end["report"] = f"/api/v1/experiments/runs/{run.id}/report.html"
        except Refusal as refusal:
            end = {"state": "failed", "what": refusal.detail}
        except asyncio.CancelledError:
            why = "the server was stopped" if run.wanted else "cancelled"
            end = {"state": "cancelled", "what": why}
        finally:
            teller.cancel()
        await run.say(**end)

    def _forget(self) -> None:
        """The oldest runs that have ended leave the list when there are many."""
        ended = [run for run in self.runs.values() if run.ended]
        for run in ended[: max(0, len(self.runs) - int(BOUNDS["runs_kept"]))]:
            del self.runs[run.id]
            if not self.kept:
                shutil.rmtree(self.folder / run.id, ignore_errors=True)

    def find(self, id_: str) -> _Run:
        if not _ID.fullmatch(id_) or id_ not in self.runs:
            raise Refusal(404, f"there is no run {id_[:60]!r}; it may have been long ago")
        return self.runs[id_]

    async def cancel(self, id_: str) -> dict[str, Any]:
        run = self.find(id_)
        if run.task is not None:
            if run.wanted:
                run.wanted = False
                run.task.cancel()  # in the queue as well as in a process, which is killed
            await asyncio.wait({run.task})
        if not run.ended:  # cancelled before its first step
            await run.say(state="cancelled", what="cancelled")
        return dict(run.state)

    async def events(self, id_: str) -> AsyncIterator[str]:
        """Server-sent events: the state now, and at each change until the end."""
        run, told = self.find(id_), None
        while True:
            async with run.changed:
                if told == run.state:
                    try:
                        await asyncio.wait_for(run.changed.wait(), 15.0)
                    except TimeoutError:
                        yield ": still there\n\n"
                        continue
                told = dict(run.state)
            yield f"data: {json.dumps(told)}\n\n"
            if told["state"] in _ENDED:
                return

    def page(self, id_: str) -> Path:
        run = self.find(id_)
        path = self.folder / run.id / "report.html"
        if run.state["state"] != "done" or not path.is_file():
            raise Refusal(404, f"run {run.id} has no report: it is {run.state['state']}")
        return path

    async def close(self) -> None:
        tasks = [run.task for run in self.runs.values() if run.task and not run.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
