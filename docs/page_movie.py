"""Make page.gif, story.gif and the four pictures of the page in docs/images, with a browser.

    python docs/page_movie.py      # needs cynosure[web], playwright and a Chromium
    python docs/page_movie.py --rooms FOLDER [--transformer FOLDER]      # every room, to look at

The same hands every time: a token is dragged until it leads, the ellipse of A is turned, and the
layers run to infinity, alone and beside softmax. The story is told step by step; its eighth is left
out where no transformer is given.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

IMAGES = Path(__file__).resolve().parent / "images"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SIZE = (1120, 640)  # of the window
WIDTH = 800  # of the movie
COLOURS = 256


# Room, width and scheme of each still.
SHOTS = (
    ("play", 1280, "light"), ("play", 390, "dark"), ("read", 1280, "dark"), ("read", 390, "light"),
)  # fmt: skip


ROOMS = ("play", "read", "look", "gallery")
# What is there once a room is ready to be seen.
READY = {
    "play": "#theorems .yes", "read": "#verdict[data-label]", "look": "#look-map button, pre",
    "gallery": ".tile",
}  # fmt: skip


def name_of(room: str, width: int, scheme: str) -> str:
    return f"page-{room}-{width}-{scheme}.png"


class Camera:
    """Frames of one page, with the pointer drawn where the mouse is."""

    def __init__(self, page: Any) -> None:
        self.page, self.frames, self.times = page, [], []
        self.at = (600.0, 400.0)

    def shoot(self, milliseconds: int = 90) -> None:
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        pen, (x, y) = ImageDraw.Draw(picture), self.at
        arrow = [(0, 0), (0, 17), (4, 13), (8, 20), (11, 19), (7, 12), (12, 12)]
        pen.polygon([(x + a, y + b) for a, b in arrow], fill="#111111", outline="#ffffff")
        height = round(picture.height * WIDTH / picture.width)
        self.frames.append(picture.resize((WIDTH, height), Image.Resampling.LANCZOS))
        self.times.append(milliseconds)

    def move(self, x: float, y: float, steps: int, held: bool = False) -> None:
        start = self.at
        for i in range(1, steps + 1):
            self.at = tuple(a + (b - a) * i / steps for a, b in zip(start, (x, y)))
            self.page.mouse.move(*self.at)
            self.page.wait_for_timeout(120 if held else 20)  # the answer is drawn
            self.shoot()

    def drag(self, selector: str, by: tuple[float, float], steps: int) -> None:
        x, y = centre(self.page, selector)
        self.move(x, y, 4)
        self.page.mouse.down()
        self.move(x + by[0], y + by[1], steps, held=True)
        self.page.mouse.up()

    def scrub(self, shares: Sequence[float]) -> None:
        """The layers, by hand: from 0 to these shares of the slider."""
        box = self.page.locator("#layer").bounding_box()
        left, right, y = box["x"] + 8, box["x"] + box["width"] - 8, box["y"] + box["height"] / 2
        self.move(left, y, 3)
        self.page.mouse.down()
        for share in shares:
            self.move(left + share * (right - left), y, 1, held=True)
        self.page.mouse.up()

    def save(self, path: Path) -> None:
        """One palette for all frames, so that only what changes is stored."""
        # Rare colours count, and some leaders come late: there is a lot of paper.
        some = self.frames[:: max(1, len(self.frames) // 8)]
        width, height = some[0].size
        strip = Image.new("RGB", (width, height * len(some)))
        for i, frame in enumerate(some):
            strip.paste(frame, (0, i * height))
        # Half of the colours by how often they are seen (the paper is the paper), half by how far
        # they are from the others.
        often = strip.quantize(COLOURS // 2, method=Image.Quantize.MEDIANCUT)
        rare = strip.quantize(COLOURS // 2, method=Image.Quantize.MAXCOVERAGE)
        palette = Image.new("P", (1, 1))
        colours = (one.getpalette() or [] for one in (often, rare))
        palette.putpalette([x for one in colours for x in one[: 3 * (COLOURS // 2)]])
        still = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in self.frames]
        options: dict[str, Any] = {"save_all": True, "append_images": still[1:], "loop": 0}
        still[0].save(path, duration=self.times, optimize=True, **options)


def centre(page: Any, selector: str) -> tuple[float, float]:
    box = page.locator(selector).first.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@contextmanager
def serving(*options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "cynosure", "serve", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGINT)


def movie(browser: Any, address: str) -> None:
    page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
    page.goto(address)
    page.locator("#badge[data-certified]").wait_for()
    page.locator("#intro-close").click()
    page.locator("#theorems .yes").first.wait_for()
    page.wait_for_timeout(1500)
    camera = Camera(page)
    camera.shoot(900)
    camera.drag("#stage [data-token='5'] path", (150, -95), 12)
    camera.shoot(1000)
    camera.drag("#ellipse [data-handle='0']", (16, -24), 8)
    camera.shoot(900)
    camera.scrub((0.03, 0.06, 0.1, 0.13, 0.2, 0.3, 0.5, 0.75, 1.0))
    camera.shoot(1500)
    page.locator("#layer").fill("0")
    camera.move(*centre(page, "#soft"), 4)
    page.mouse.down()
    page.mouse.up()
    page.locator("#beside-proof", has_text="Proved").wait_for()
    page.wait_for_timeout(800)
    camera.shoot(900)
    camera.scrub((0.03, 0.06, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0))
    camera.shoot(2200)
    camera.save(IMAGES / "page.gif")
    page.close()


def story(browser: Any, address: str, inside: bool) -> None:
    """The steps of the story, each with its one thing to do, as a hall sees them."""
    page = browser.new_page(viewport={"width": 960, "height": 720}, color_scheme="light")
    page.set_default_timeout(120_000)
    camera = Camera(page)

    def begin(step: int, ready: str) -> None:
        page.goto(f"{address}#story={step}")
        page.locator(ready).first.wait_for(state="attached")
        if step == 1:
            page.locator("#story-present").click()
        page.wait_for_timeout(900)
        camera.at = (940.0, 700.0)
        camera.shoot(2600)

    def act(times: int, pause: int, shown: int) -> None:
        for _ in range(times):
            page.locator("#story-act").click()
            page.wait_for_timeout(pause)
            camera.shoot(shown)

    def watch(frames: int, every: int) -> None:
        page.locator("#story-act").click()
        for _ in range(frames):
            page.wait_for_timeout(every)
            camera.shoot(every)

    begin(1, "#stage .token")
    act(2, 200, 900)
    begin(2, "#stage .score")
    camera.drag("#stage [data-token='4'] path", (130, -25), 9)
    camera.shoot(1300)
    begin(3, "#stage .token")
    act(4, 300, 600)
    begin(4, "#stage [data-token='39']")
    watch(9, 420)
    begin(5, "#stage [data-role=leader]")
    camera.drag("#stage [data-token='1'] path", (60, -45), 8)
    camera.shoot(900)
    begin(6, ".birth")
    watch(12, 420)
    for layer in (58, 59, 60):
        page.locator("#layer").evaluate(
            "(node, k) => { node.value = k; node.dispatchEvent(new Event('input')); }", layer
        )
        page.wait_for_timeout(300)
        camera.shoot(600 if layer < 60 else 2000)
    begin(7, "#beside [data-token='39']")
    watch(16, 420)
    if inside:
        begin(8, "#look-maps button")
        watch(6, 700)
    begin(9, "#words .leads")
    act(2, 500, 1500)
    camera.save(IMAGES / "story.gif")
    page.close()


def still(browser: Any, address: str, room: str, width: int, scheme: str) -> Image.Image:
    """One room, once it is ready."""
    height = 800 if width > 600 else 844
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.set_default_timeout(120_000)
    page.goto(f"{address}#{room}")
    page.locator(f"#room-{room}").locator(READY[room]).first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1000)
    wide = page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        print(f"{room} is {wide} px wide in a window of {width}")
    shot = Image.open(io.BytesIO(page.screenshot(full_page=room == "look"))).convert("RGB")
    page.close()
    return shot


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rooms", type=Path, help="leave a picture of every room there instead")
    parser.add_argument("--transformer", help="a folder to look inside of")
    asked = parser.parse_args()
    named = [os.environ.get("CYNOSURE_BROWSER"), *NAMES]
    found = next((path for name in named if name and (path := shutil.which(name))), None)
    if found is None:
        sys.exit("no Chromium found: set CYNOSURE_BROWSER, or `make browser` on Debian")
    from playwright.sync_api import sync_playwright

    every = [(room, w, s) for room in ROOMS for w in (1280, 390) for s in ("light", "dark")]
    shots, folder = (every, asked.rooms) if asked.rooms else (SHOTS, IMAGES)
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--transformer", asked.transformer] if asked.transformer else []
    with serving(*options) as address, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        if not asked.rooms:
            movie(browser, address)
            story(browser, address, bool(asked.transformer))
        for shot in shots:
            picture = still(browser, address, *shot)
            small = picture if asked.rooms else picture.quantize(256, Image.Quantize.MAXCOVERAGE)
            small.save(folder / name_of(*shot), optimize=True)
        browser.close()
    for path in sorted([*folder.glob("page*"), *folder.glob("story*")]):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
