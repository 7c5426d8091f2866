"""`python -m tests.load --minutes 30`: a server of its own under mixed load, on this machine only.

Each of the clients asks for one thing after another, drawn from KINDS: quick and long questions,
what must be refused, and answers of some MB. One client in ten leaves early or does not read. A
status of 500 or more is a finding, except 503 with Retry-After, and so is a connection that ends
without an answer. The server's memory stays flat, as in `tests.soak`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from .soak import ALLOWED, growth

SLOWEST = 300.0  # seconds until an answer has come
HOLD = 40.0  # seconds for which a client does not read: it is cut off before
RUDE = 0.1  # share of requests whose client leaves or does not read
WORDS = "good bad dull great film story not a the acting slow moving poor best".split()
WRONG = [
    *(("limit", {"tokens": tokens}) for tokens in ([], [[1], [1, 2]], [["x"]])),
    ("none", {}),
    ("explain", {"text": 7}),
]
FLOW = {"name": "SphereFlow", "attention": {"name": "Softmax", "beta": 9.0}}


def _tokens(draw: Random, n: int, d: int = 2) -> list[list[float]]:
    return [[draw.gauss(0, 1) for _ in range(d)] for _ in range(n)]


def _text(draw: Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 80)))


KINDS: dict[str, tuple[int, Any]] = {  # how often of 100, the path and the body
    "limit": (24, lambda r: ("limit", {"tokens": _tokens(r, r.randint(2, 60))})),
    "explain": (18, lambda r: ("explain", {"text": _text(r)})),
    "predict": (12, lambda r: ("predict", {"texts": [_text(r) for _ in range(r.randint(1, 200))]})),
    "simulate": (12, lambda r: ("simulate", {"tokens": _tokens(r, 40, 3), "layers": 20})),
    "check": (6, lambda r: ("check", {"tokens": _tokens(r, 12), "layers": 6})),
    "control": (4, lambda r: ("control", {"tokens": _tokens(r, 8, 3), "leaders": [0]})),
    "basins": (3, lambda r: ("basins", {"tokens": _tokens(r, 8), "corner": [-2, -2],
                                        "opposite": [2, 2], "side": 30})),
    "flow": (3, lambda r: ("simulate", {"tokens": _tokens(r, 30, 3), "dynamics": FLOW, "time": 9})),
    "heavy": (2, lambda r: ("limit", {"tokens": _tokens(r, 3000, 8), "deadline": 5})),
    "large": (4, lambda r: ("simulate", {"tokens": _tokens(r, 400, 4), "layers": 200})),
    "wrong": (6, lambda r: r.choice(WRONG)),
    "page": (6, lambda r: ("", None)),
}  # fmt: skip


async def _ask(port: int, draw: Random) -> str:
    """One request; what came of it. `500...` and `lost` are findings."""
    name = draw.choices(list(KINDS), [often for often, _ in KINDS.values()])[0]
    path, asked = KINDS[name][1](draw)
    body = b"" if asked is None else json.dumps(asked).encode()
    head = f"GET /{path}" if asked is None else f"POST /api/v1/{path}"
    head += f" HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n"
    if asked is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    rude = draw.random() < RUDE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    try:
        writer.write(f"{head}\r\n".encode() + (body[: len(body) // 2] if rude else body))
        if rude and draw.random() < 0.5:
            await asyncio.sleep(draw.uniform(0, 2))
            return "left"
        if rude:
            writer.write(body[len(body) // 2 :])
            await asyncio.sleep(HOLD)
            return "not read"
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SLOWEST)
        said = b""
        async with asyncio.timeout(SLOWEST):
            while part := await reader.read(1 << 16):
                said = said or part[-200:]
    except (ConnectionError, asyncio.IncompleteReadError, TimeoutError) as error:
        return "left" if rude else f"lost: {name}, {type(error).__name__}"
    finally:
        writer.transport.abort()
    status = answer[9:12].decode()
    told = status != "503" or b"retry-after" in answer.lower()
    return status if status < "500" or (status == "503" and told) else f"{status}: {name}, {said!r}"


def _megabytes(pid: int) -> float:
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in x)
    return int(line.split()[1]) / 1024


async def load(
    port: int, pid: int, clients: int, seconds: float, seed: int
) -> tuple[Counter[str], list[float]]:
    """How often each thing came of a request, and the server's megabytes over time."""
    came: Counter[str] = Counter()
    held: list[float] = []
    start = time.monotonic()

    async def client(number: int) -> None:
        draw = Random(f"{seed}:{number}")
        while time.monotonic() - start < seconds:
            came[await _ask(port, draw)] += 1
            await asyncio.sleep(draw.uniform(0, 2))

    running = asyncio.gather(*(client(i) for i in range(clients)))
    while not running.done():
        held.append(_megabytes(pid))
        if len(held) % 12 == 1:
            print(f"{5 * len(held) / 60:5.1f} min {held[-1]:7.1f} MB {dict(came)}", flush=True)
        await asyncio.wait({running}, timeout=5.0)
    await running
    return came, held


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    command = [sys.executable, "-m", "cynosure", "serve", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        seconds = 60 * given.minutes
        came, held = asyncio.run(load(port, server.pid, given.clients, seconds, given.seed))
    finally:
        server.terminate()
        server.wait(20)
    wrong = {what: times for what, times in came.items() if ":" in what}
    grew = growth(held)
    print(f"{came.total()} requests: {dict(sorted(came.items()))}")
    print(f"{sum(wrong.values())} findings; at most {max(held):.0f} MB, the last tenth "
          f"{grew:.1f} MB above the second, allowed {ALLOWED:.0f}")  # fmt: skip
    return int(bool(wrong) or grew > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
