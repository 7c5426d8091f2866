"""Pictures in files: read within bounds, seen as the library sees them, drawn on their grid."""

from __future__ import annotations

import io
import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from cynosure.cli import main
from cynosure.pretrained import load_transformer
from cynosure.pretrained.loading.images import MOST_PIXELS, Grid, open_picture
from cynosure.pretrained.pages.inspection import inspection
from tiny_models import tiny_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

RULES = {
    "image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16},
    "do_resize": True, "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255,
    "do_normalize": True, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4],
}  # fmt: skip


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A red square on a gradient, in a file; 4 x 4 patches of 8 pixels."""
    pixels = np.full((32, 32, 3), 60, dtype=np.uint8)
    pixels[..., 2] += np.arange(32, dtype=np.uint8)[:, None] * 3
    pixels[8:16, 16:24] = (250, 20, 20)
    path = tmp_path_factory.mktemp("pictures") / "scene.png"
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("models") / "vit"
    tiny_model("vit").save_pretrained(root)
    (root / "preprocessor_config.json").write_text(json.dumps(RULES))
    return root


def test_a_file_is_seen_as_the_librarys_processor_sees_it(folder, scene) -> None:
    m = load_transformer(folder)
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    with Image.open(scene) as image:
        pixels = processor(image.convert("RGB"), return_tensors="np")["pixel_values"][0]
        again = m.trace(image)
    trace = m.trace(scene)
    np.testing.assert_array_equal(trace.z, m.trace(pixels).z)
    np.testing.assert_array_equal(trace.z, again.z)
    np.testing.assert_array_equal(trace.z, m.trace(str(scene)).z)
    assert trace.grid == Grid(("[CLS]",), 4, 4) and trace.picture.shape == (16, 16, 3)
    assert trace.words[1 + 4 + 2] == "(1, 2)"
    brightest = trace.picture[..., 0].reshape(4, 4, 4, 4).mean((1, 3)).argmax()
    assert divmod(int(brightest), 4) == (1, 2)  # rows are rows
    mass = trace.attentions[..., 0].mean(axis=-1)
    np.testing.assert_allclose(m.survey(scene).heads["first_mass"], mass, atol=1e-6)
    assert m.iterate(scene, 1, 1).values[1] == pytest.approx(trace.z[2], abs=1e-5)


def test_without_a_processor_it_says_what_it_does(scene) -> None:
    trace = load_transformer(tiny_model("vit")).trace(scene)
    assert "resized to 16 x 16 and scaled to [-1, 1]" in trace.trajectory.status.notes[0]
    assert trace.picture.min() >= 0 and trace.picture.max() <= 1


def test_a_grid_places_its_patches() -> None:
    grid = Grid(("[CLS]", "[DISTIL]"), 2, 3)
    assert grid.names == ("[CLS]", "[DISTIL]", "(0, 0)", "(0, 1)", "(0, 2)", "(1, 0)", "(1, 1)",
                          "(1, 2)")  # fmt: skip
    np.testing.assert_array_equal(grid.over(np.arange(8)), [[2, 3, 4], [5, 6, 7]])
    deit = load_transformer(tiny_model("deit"))
    assert deit.trace(np.zeros((3, 16, 16))).words[:3] == ("[CLS]", "[DISTIL]", "(0, 0)")


def test_the_chapter_of_a_picture(folder, scene) -> None:
    report = inspection(load_transformer(folder), scene)
    (chapter,) = [c for c in report.chapters if c.title == "Attention on the picture"]
    assert "4 x 4 patches" in chapter.summary and report.title.endswith("scene.png")
    trace = load_transformer(folder).trace(scene)
    received = trace.attentions.mean(axis=(1, 2))
    for row in chapter.tables[0].rows:
        k, special, sink, share, *_ = row
        assert special == pytest.approx(received[k, 0]) and share == pytest.approx(
            received[k].max()
        )
        assert sink == trace.words[int(received[k].argmax())]
    (figure,) = chapter.figures
    titles = [ax.get_title(loc="left") for ax in figure.drawing.axes]
    assert titles[0] == "what the model sees" and titles[1].startswith("layer 0: ")


# --- what is no picture --------------------------------------------------------------------------


def png(wide: int, high: int, rows: bytes = b"") -> bytes:
    """A PNG that declares wide x high pixels, whatever it has."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def jpeg() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((40, 40, 3), dtype=np.uint8)).save(stream, "JPEG")
    return stream.getvalue()


BAD = {
    "bomb": (png(100_000, 100_000), r"100000 x 100000|exceeds limit"),
    "large": (png(10_000, MOST_PIXELS // 10_000 + 1), "million"),
    "cut": (png(64, 64, b"\0" * 50), "damaged or cut short"),
    "cut jpeg": (jpeg()[:200], "damaged or cut short|neither PNG nor JPEG"),
    "gif": (b"GIF89a" + b"\0" * 40, "neither PNG nor JPEG"),
    "text": (b"hello", "neither PNG nor JPEG"),
    "empty": (b"", "neither PNG nor JPEG"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_refused_in_one_line(kind, tmp_path) -> None:
    data, said = BAD[kind]
    path = tmp_path / "p.png"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=said) as told:
        open_picture(path)
    assert "\n" not in str(told.value) and "p.png" in str(told.value)


def test_the_command(folder, scene, tmp_path, capsys) -> None:
    assert main(["-q", "inspect", "image", str(folder), str(scene)]) == 0
    assert "The picture by layer" in capsys.readouterr().out
    (tmp_path / "bomb.png").write_bytes(BAD["bomb"][0])
    assert main(["-q", "inspect", "image", str(folder), str(tmp_path / "bomb.png")]) == 2
    assert "bomb.png" in capsys.readouterr().err
    assert main(["-q", "inspect", "image", str(folder), str(tmp_path / "none.png")]) == 2
    assert "is no file" in capsys.readouterr().err
    assert main(["-q", "inspect", "text", str(folder), "a cat"]) == 2
    assert "reads pictures" in capsys.readouterr().err
    bert = tmp_path / "bert"
    tiny_model("bert").save_pretrained(bert)
    capsys.readouterr()
    assert main(["-q", "inspect", "image", str(bert), str(scene)]) == 2
    assert "reads texts" in capsys.readouterr().err
