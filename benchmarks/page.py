"""How many updates a second does the page show while a token is dragged, at n = 50, 200, 2,000?

    python benchmarks/page.py        # needs cynosure[web], playwright and a Chromium

A real browser drags one token for some seconds. Counted are the answers of /limit that arrived,
each of which is drawn; the round trip is what the browser itself measured for them. On a machine
that does other things, the processor time of one update (browser and server together) says more.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cynosure as cy

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ENTRIES = """() => performance.getEntriesByType('resource')
    .filter(e => e.name.endsWith('/limit')).map(e => e.duration)"""


def link(n: int) -> str:
    """The state of the page with n Gaussian tokens, as its link holds it."""
    z = cy.configurations.gaussian(n, 2, seed=1).tolist()
    show = {"hull": True, "polytope": True, "arrows": True, "names": False, "basins": False}
    state = {"z": z, "exact": None, "alpha": 0.5, "A": None, "k": 0, "show": show}
    return base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")


def spent(pid: int) -> float:
    """Processor seconds of a process and all below it."""
    tick = os.sysconf("SC_CLK_TCK")
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return (int(fields[11]) + int(fields[12])) / tick + sum(spent(int(child)) for child in below)


def dragging(page: Any, address: str, n: int, seconds: float) -> dict[str, Any]:
    """One token led round in circles; what arrived meanwhile."""
    page.goto("about:blank")
    page.goto(f"{address}#play={link(n)}")
    page.locator("#badge[data-certified]").wait_for()
    page.wait_for_timeout(1000)
    page.wait_for_load_state("networkidle")  # theorems and layers are done
    page.wait_for_timeout(3000)
    box = page.locator("#stage [data-token] path").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.evaluate("() => performance.clearResourceTimings()")
    page.evaluate("() => performance.setResourceTimingBufferSize(20000)")
    page.mouse.move(x, y)
    page.mouse.down()
    start, before = time.perf_counter(), spent(os.getpid())
    moves = 0
    while time.perf_counter() - start < seconds:
        angle = moves / 15
        page.mouse.move(x + 60 * math.sin(angle), y + 60 * (1 - math.cos(angle)))
        moves += 1
    took, used = time.perf_counter() - start, spent(os.getpid()) - before
    page.mouse.up()
    durations = sorted(page.evaluate(ENTRIES))
    return {
        "n": n,
        "updates_per_second": len(durations) / took,
        "moves_per_second": moves / took,
        "cpu_ms_per_update": 1e3 * used / len(durations),
        "round_trip_ms": statistics.median(durations),
        "round_trip_p99_ms": durations[int(0.99 * (len(durations) - 1))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    asked = parser.parse_args()
    named = [os.environ.get("CYNOSURE_BROWSER"), *NAMES]
    browser = next((path for name in named if name and (path := shutil.which(name))), None)
    if browser is None:
        print("no Chromium found: set CYNOSURE_BROWSER, or `make browser` on Debian")
        return
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "cynosure", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        with sync_playwright() as started:
            page = started.chromium.launch(
                executable_path=browser, args=["--no-sandbox"]
            ).new_page()
            rows = [dragging(page, address, n, asked.seconds) for n in (50, 200, 2000)]
        server.send_signal(signal.SIGINT)
    for row in rows:
        print("  ".join(f"{key} {value:.1f}" for key, value in row.items()))
    asked.out.write_text(json.dumps({"version": cy.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
