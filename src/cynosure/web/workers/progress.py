"""Lines of JSON while a computation goes on: how far it is, then its answer, or why none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ..requests.problems import Refusal
from .pool import Answer, Gone, Tell

LINES = "application/x-ndjson"
_running: set[asyncio.Task[Answer]] = set()  # asyncio itself keeps no hold of a task


async def progress(
    ask: Callable[[Gone, Tell], Awaitable[Answer]],
) -> AsyncIterator[bytes | memoryview]:
    """`{"done": 0.4, "what": "..."}` at each step; at the end `{"answer": ...}`, or a `problem`.

    A client that leaves ends the stream; the computation learns it through `gone`.
    """
    left = False
    news: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def gone() -> bool:
        return left

    async def run() -> Answer:
        return await ask(gone, news.put_nowait)

    task = asyncio.create_task(run())
    _running.add(task)
    task.add_done_callback(_ended)
    try:
        while not task.done() or not news.empty():
            step = asyncio.ensure_future(news.get())
            await asyncio.wait({task, step}, return_when=asyncio.FIRST_COMPLETED)
            if not step.done():
                step.cancel()
                break
            yield json.dumps(step.result()).encode() + b"\n"
        try:
            answer = await task
            if answer.media != "application/json":
                wrong = f"expected an answer in JSON, got {answer.media}; ask without {LINES}"
                raise Refusal(422, wrong)
            for part in (b'{"answer": ', answer.body, b"}\n"):
                yield part
        except Refusal as refusal:
            said = {"status": refusal.status, "detail": refusal.detail}
            yield json.dumps({"problem": said}).encode() + b"\n"
    finally:
        left = True


def _ended(task: asyncio.Task[Answer]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # of a client that left nobody else asks
