"""Small files that ask for much, and damaged ones: exit 2, one line, little memory."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


def _npy(shape: tuple[int, ...]) -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def _packed(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("z.npy", data)
    return stream.getvalue()


def _pax(megabytes: int) -> bytes:
    """A tar with a header of megabytes before its only member."""
    size = megabytes << 20
    head = tarfile.TarInfo("pax")
    head.type, head.size = tarfile.XHDTYPE, size
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) as file:
        file.write(head.tobuf(tarfile.USTAR_FORMAT))
        file.write(f"{size} comment=".encode())
        for _ in range(megabytes):
            file.write(bytes(1 << 20))
    return stream.getvalue()


def _members(count: int) -> bytes:
    block = tarfile.TarInfo("aclImdb/train/other/1_1.txt").tobuf(tarfile.USTAR_FORMAT)
    return gzip.compress(block * count + bytes(1024), 1)


def _review(megabytes: int) -> bytes:
    info = tarfile.TarInfo("aclImdb/train/pos/1_1.txt")
    info.size = 32 << 20
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) as file:
        for _ in range(megabytes >> 5):
            file.write(info.tobuf(tarfile.USTAR_FORMAT))
            for _ in range(32):
                file.write(b"a" * (1 << 20))
    return stream.getvalue()


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _garbled() -> bytes:
    """A gzip file whose stream is damaged in the middle: zlib itself complains."""
    whole = bytearray(gzip.compress(os.urandom(3000)))
    whole[12:40] = b"\xff" * 28
    return bytes(whole)


FIT = "fit FILE --out model"
BOMBS: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "a huge pax header": ("x.tar.gz", FIT, lambda: _pax(400)),
    "countless members": ("x.tar.gz", FIT, lambda: _members(200_000)),
    "a review of zeros": ("x.tar.gz", FIT, lambda: _review(256)),
    "a packed array": (
        "x.npz", "limit FILE", lambda: _packed(_npy((5 * 10**7, 1)) + bytes(4 * 10**8)),
    ),
    "146 TiB": ("x.npy", "limit FILE", lambda: _npy((10**13, 2)) + bytes(64)),
    "a packed 146 TiB": ("x.npz", "limit FILE", lambda: _packed(_npy((10**13, 2)) + bytes(64))),
    "one line": ("x.csv", "limit FILE", lambda: b"0.5," * 2_500_000 + b"1"),
    "one line, one cell": ("x.csv", "limit FILE", lambda: b"1" * 20_000_000),
    "short lines, one bad": ("x.csv", "limit FILE", lambda: b"0\n" * 1_000_000 + b"x\n"),
    "nested JSON": ("x.jsonl", FIT, lambda: b"[" * 1_000_000),
    "wide JSON": ("x.jsonl", FIT, lambda: b"[" + b"[]," * 8_000_000 + b"1]"),
    "nested TOML": ("x.toml", "--config FILE info", lambda: b"a = " + b"[" * 100_000),
    "large TOML": ("x.toml", "--config FILE info", lambda: b"# \n" * 2_000_000),
    "a quote not closed": ("x.csv", FIT, lambda: b'text,label\n"' + b"ab,cd\n" * 4_000_000),
    "a label of a megabyte": (
        "x.csv", FIT, lambda: b"text,label\n" + b"a film,b\n" * 100_000 + b"c," + b"d" * 1_000_000,
    ),
    "one line of text": ("x.txt.gz", "predict FILE", lambda: gzip.compress(bytes(200 << 20), 1)),
    "a cut gzip": ("x.csv.gz", FIT, lambda: _cut(gzip.compress(b"text,label\na,b\n" * 9999))),
    "a garbled gzip": ("x.csv.gz", FIT, _garbled),
    "garbled lines": ("x.txt.gz", "predict FILE", _garbled),
    "a garbled archive": ("x.tar.gz", FIT, _garbled),
    "a cut npy header": ("x.npy", "limit FILE", lambda: _npy((2, 2))[:40]),
    "a nested npy header": (
        "x.npy", "limit FILE",
        lambda: b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000,
    ),
    "an empty npy": ("x.npy", "limit FILE", lambda: b""),
    "a run of nothing": ("x.npz", "check FILE", lambda: _packed(b"")),
}  # fmt: skip


# Each command in a fork, where the peak of memory counts from the fork on.
SERVER = """
import os, sys
from contextlib import redirect_stderr, suppress
from cynosure.cli import main

with redirect_stderr(open(os.devnull, "w")), suppress(SystemExit):
    main(["fit", "nowhere.csv", "--out", "model"])  # what most of them import
for line in sys.stdin:
    here, *words = line.split()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(here)
            for name, number in ((os.devnull, 1), ("said", 2)):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            code = main(words)
        except SystemExit as end:
            code = end.code
        finally:
            sys.stderr.flush()
            peak = [line.split()[1] for line in open("/proc/self/status") if line[:6] == "VmHWM:"]
            open("peak", "w").write(peak[0])
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def told() -> Iterator[Callable[[str, Path], tuple[int, str, float]]]:
    """Runs a command in a folder: exit code, what was said on stderr, peak of memory in MB."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], env=env, stdin=pipe, stdout=pipe, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        send, hear = server.stdin, server.stdout

        def ask(command: str, here: Path) -> tuple[int, str, float]:
            send.write(f"{here} {command}\n")
            send.flush()
            code = int(hear.readline())
            return code, (here / "said").read_text(), float((here / "peak").read_text()) / 1024

        yield ask
        send.close()


pytestmark = [
    pytest.mark.xdist_group("hostile files"),
    pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc"),
]


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_one_line_and_little_memory(name: str, told, tmp_path: Path) -> None:
    file, command, make = BOMBS[name]
    data = make()
    (tmp_path / file).write_bytes(data)
    code, said, megabytes = told(command.replace("FILE", file), tmp_path)
    # a slow machine is told what is being done before what was wrong
    *before, last = said.splitlines()
    assert code == 2 and last.startswith("cynosure: error:") and len(before) <= 4, said
    assert "Traceback" not in said and "error" not in " ".join(before), said
    assert file in said, said
    assert megabytes < 4 * len(data) / 2**20 + 500, (megabytes, len(data))


def test_the_measure_of_memory_sees_what_is_large(told, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((40_000_000, 1), np.nan))
    code, said, megabytes = told("limit x.npy", tmp_path)
    assert code == 2 and "finite" in said and megabytes > 305


def test_names_that_are_too_long_are_one_line(told, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,0\n0,1\n")
    for command in (
        f"limit {'y' * 300}.csv",
        f"limit x.csv --out {'y' * 300}.csv",
        f"simulate x.csv --out {'y' * 5000}.npz",
        f"predict {'y' * 300}.txt",
        f"--config {'y' * 300}.toml info",
        f"run figure1 --quick --out {'y' * 300}",
    ):
        code, said, _ = told(command, tmp_path)
        assert code == 2 and said.count("\n") == 1 and "too long" in said, (command[:30], said)


def test_what_cannot_be_written_is_refused_before_the_work(told, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,0\n0,1\n")
    (tmp_path / "folder.npz").mkdir()
    for command in ("simulate x.csv --out x.csv/run.npz", "simulate x.csv --out folder.npz"):
        code, said, _ = told(command, tmp_path)
        assert code == 2 and said.count("\n") == 1, said
        assert "file" in said and "settled" not in said


def test_numbers_too_large_for_floats_are_one_line(told, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1e308,1e308\n1e308,-1e308\n-1e308,3\n2,2\n")
    code, said, _ = told("limit x.csv --exact", tmp_path)
    assert code in (0, 2) and "Traceback" not in said and "--debug shows where" not in said, said


def test_check_of_an_array_says_what_it_wants() -> None:
    program = "import cynosure as cy\ntry: cy.check([[1.0]])\nexcept TypeError as e: print(e)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert "check: expected a Trajectory, got list" in done.stdout and not done.stderr
