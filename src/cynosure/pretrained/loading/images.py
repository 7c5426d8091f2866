"""Pictures as a model reads them: a bounded reader of files, and patches as tokens with places."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from ..._files.bounded import read_bytes
from ..._shapes import Float

LARGEST = 64 << 20  # bytes of a file
MOST_PIXELS = 50_000_000  # a small file can unfold to far more
FORMATS = ("PNG", "JPEG")


@final
@dataclass(frozen=True)
class Grid:
    """The tokens of a picture: some special ones, then patches row by row from the upper left."""

    special: tuple[str, ...]
    rows: int
    columns: int

    @property
    def names(self) -> tuple[str, ...]:
        """What the special tokens are called, and (row, column) of every patch."""
        places = (f"({r}, {c})" for r in range(self.rows) for c in range(self.columns))
        return (*self.special, *places)

    def over(self, values: np.ndarray) -> np.ndarray:
        """Values of tokens (..., n) as pictures (..., rows, columns), without the special ones."""
        patches = values[..., len(self.special) :]
        return patches.reshape(*values.shape[:-1], self.rows, self.columns)


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """A picture as numbers for the model (channels, height, width), and as one can look at it."""

    pixels: np.ndarray
    shown: Float[np.ndarray, "h w 3"]  # red, green, blue from 0 to 1
    notes: tuple[str, ...] = ()


def open_picture(path: str | Path) -> Any:
    """A PNG or JPEG file as an upright RGB picture of Pillow, if it is of a sensible size."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    path = Path(path)
    try:
        data = read_bytes(path, LARGEST)
    except OSError as error:
        raise ValueError(f"{path}: no picture could be read ({error.strerror or error})") from None
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            wide, high = image.size
            if wide * high > MOST_PIXELS:
                raise ValueError(
                    f"{path}: {wide} x {high} pixels; at most {MOST_PIXELS // 10**6} million are "
                    "read: make it smaller first"
                )
            return ImageOps.exif_transpose(image).convert("RGB")
    except UnidentifiedImageError:
        raise ValueError(f"{path}: neither PNG nor JPEG") from None
    except Image.DecompressionBombError as error:
        raise ValueError(f"{path}: {error}") from None
    except (OSError, SyntaxError, EOFError, OverflowError, MemoryError) as error:  # of decoders
        raise ValueError(f"{path}: the picture is damaged or cut short ({error})") from None


def seen(picture: Any, processor: Any, shape: tuple[int, ...]) -> Seen:
    """A file, a picture of Pillow, or numbers (channels, height, width), as the model takes it.

    Files and pictures go through the model's own `processor`; without one they are resized to the
    model's size and scaled to [-1, 1], which is said. Numbers are taken as they are.
    """
    takes = (
        "tokens: the model reads pictures: a PNG or JPEG file, a picture of Pillow, an array "
        f"(channels, height, width) of shape {shape}, or tokens (n, d)"
    )
    if isinstance(picture, str | os.PathLike):
        if not Path(picture).is_file():
            raise ValueError(f"{takes}; {str(picture)[:80]!r} is no file")
        picture = open_picture(Path(picture))
    if not hasattr(picture, "resize") or not hasattr(picture, "getbands"):
        given = tuple(np.shape(picture))
        if given != shape:
            raise ValueError(f"{takes}; got {given}")
        pixels = np.asarray(picture.detach().cpu() if hasattr(picture, "detach") else picture)
        return Seen(pixels, _visible(pixels))
    image = picture.convert("RGB")
    if processor is None:
        small = np.asarray(image.resize((shape[2], shape[1]), resample=2), dtype=np.float64) / 255
        note = (
            "No preprocessor_config.json with the model: the picture was resized to "
            f"{shape[2]} x {shape[1]} and scaled to [-1, 1]."
        )
        return Seen(2 * small.transpose(2, 0, 1) - 1, small, (note,))
    try:
        pixels = np.asarray(processor(image, return_tensors="np")["pixel_values"][0])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"picture: the model's own processor refuses it ({error})") from None
    if pixels.shape != shape:
        raise ValueError(
            f"picture: the processor makes it {pixels.shape}, and the model takes {shape}: "
            "preprocessor_config.json belongs to another model"
        )
    return Seen(pixels, _visible(pixels))


def _visible(pixels: np.ndarray) -> np.ndarray:
    """Numbers (channels, height, width) from 0 to 1 as (height, width, 3), to be looked at."""
    rgb = np.moveaxis(pixels.astype(np.float64), 0, -1)
    rgb = rgb[..., :3] if rgb.shape[-1] >= 3 else np.repeat(rgb[..., :1], 3, axis=-1)
    low, high = float(rgb.min()), float(rgb.max())
    return (rgb - low) / ((high - low) or 1.0)
