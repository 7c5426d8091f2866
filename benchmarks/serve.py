"""How many requests a second does the server answer, from 1 to 256 clients at once?

    python benchmarks/serve.py                    # limit, explain, predict; a minute or two
    python benchmarks/serve.py --soak 600         # and ten minutes of mixed load: is memory flat?

Each client waits for its answer before it asks again. Beside it, in the same run and taking turns
with it, the peer: a plain FastAPI endpoint around scikit-learn's TF-IDF and logistic regression,
one process, fitted on a synthetic set of the same size of texts. Ours explains; it should not be
slower for that. Loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cynosure as cy

CLIENTS = (1, 4, 16, 64, 256)
TEXTS = [f"{text} {i}" for i, text in enumerate(cy.datasets.synthetic(100, seed=3).texts)]
TOKENS = cy.configurations.gaussian(50, 2, seed=1).tolist()

PEER = """
import sys, uvicorn, socket
import cynosure as cy
from fastapi import FastAPI
from pydantic import BaseModel
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

data = cy.datasets.synthetic(2000, seed=1)
model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression())
model.fit(data.texts, data.labels)
app = FastAPI()

class Asked(BaseModel):
    texts: list[str]

@app.post("/predict")
def predict(body: Asked):
    return {"labels": [str(x) for x in model.predict(body.texts)]}

listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # no delay
listening.bind(("127.0.0.1", 0))
listening.listen(512)
print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
try:
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run([listening])
except KeyboardInterrupt:
    pass
"""


def started(command: list[str]) -> tuple[subprocess.Popen[str], str]:
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, server.stdout.readline().strip().rstrip("/")


async def _request(host: str, port: int, request: bytes, reader: Any, writer: Any) -> int:
    """One request on a kept connection; the status."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    size = next(
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    await reader.readexactly(size)
    return status


async def load(address: str, path: str, body: Any, clients: int, seconds: float) -> dict[str, Any]:
    """`clients` at once for some seconds: requests a second, quantiles, errors."""
    host, _, port = address.removeprefix("http://").partition(":")
    sent = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent
    took: list[float] = []
    errors = 0
    until = time.perf_counter() + seconds

    async def client() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
        while (start := time.perf_counter()) < until:
            status = await _request(host, int(port), request, reader, writer)
            errors += status != 200
            took.append(time.perf_counter() - start)
        writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    whole = time.perf_counter() - begin
    took.sort()
    return {
        "path": path,
        "clients": clients,
        "requests_per_second": len(took) / whole,
        "p50_ms": 1e3 * statistics.median(took),
        "p99_ms": 1e3 * took[int(0.99 * (len(took) - 1))],
        "requests": len(took),
        "errors": errors,
    }


def family(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def memory(pid: int) -> float:
    """Resident MB of a process and its children."""
    pages = sum(int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in family(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def spent(pid: int) -> float:
    """Processor seconds of a process and its children: what a busy machine cannot falsify much."""
    stats = [Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split() for p in family(pid)]
    return sum(int(s[11]) + int(s[12]) for s in stats) / os.sysconf("SC_CLK_TCK")


def soak(address: str, pid: int, seconds: float) -> dict[str, Any]:
    """Mixed load of 16 clients; memory every tenth of the time."""
    mixed = {
        "limit": {"tokens": TOKENS},
        "explain": {"text": TEXTS[0]},
        "predict": {"texts": TEXTS},
    }
    seen, errors, requests = [memory(pid)], 0, 0
    for _ in range(10):
        for route, body in mixed.items():
            row = asyncio.run(load(address, f"/api/v1/{route}", body, 16, seconds / 30))
            errors, requests = errors + row["errors"], requests + row["requests"]
        seen.append(memory(pid))
    return {"seconds": seconds, "requests": requests, "errors": errors, "memory_mb": seen}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="for each number of clients")
    parser.add_argument("--soak", type=float, default=0.0, help="seconds of mixed load")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    asked = parser.parse_args()
    ours, address = started([sys.executable, "-m", "cynosure", "serve", "--port", "0"])
    peer, other = started([sys.executable, "-c", PEER])
    cases = [
        (ours, address, "/api/v1/limit", {"tokens": TOKENS}),
        (ours, address, "/api/v1/explain", {"text": TEXTS[0]}),
        (ours, address, "/api/v1/predict", {"texts": TEXTS}),
        (peer, other, "/predict", {"texts": TEXTS}),
    ]
    result: dict[str, Any] = {"version": cy.__version__, "cores": os.cpu_count(), "rows": []}
    result["texts"] = {"count": len(TEXTS), "characters": sum(map(len, TEXTS))}
    try:
        for _, where, path, body in cases:
            asyncio.run(load(where, path, body, 2, 1.0))  # models are loaded
        for clients in CLIENTS:
            for server, where, path, body in cases:
                before = spent(server.pid)
                row = asyncio.run(load(where, path, body, clients, asked.seconds))
                row["server"] = "cynosure" if server is ours else "TF-IDF + LR"
                row["cpu_ms_per_request"] = 1e3 * (spent(server.pid) - before) / row["requests"]
                row["memory_mb"] = memory(server.pid)
                result["rows"].append(row)
                print(
                    f"{row['server']:12} {path:16} {clients:4} clients  "
                    f"{row['requests_per_second']:8.1f}/s  p50 {row['p50_ms']:8.1f} ms  "
                    f"p99 {row['p99_ms']:8.1f} ms  {row['cpu_ms_per_request']:6.2f} ms of CPU  "
                    f"{row['errors']} errors",
                    flush=True,
                )
        asked.out.write_text(json.dumps(result, indent=1) + "\n")  # the soak is long
        if asked.soak:
            result["soak"] = soak(address, ours.pid, asked.soak)
            print(result["soak"])
    finally:
        for server in (ours, peer):
            server.send_signal(signal.SIGINT)
            server.wait(20)
    asked.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
