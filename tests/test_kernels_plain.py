"""Small inputs without a compiler: the sets of rational arithmetic, and those of the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cynosure as cy
from cynosure import _compiled
from cynosure.engine import kernels

RNG = np.random.default_rng(30)


def rational_sets(z: np.ndarray, A: np.ndarray | None) -> list[list[int]]:
    """C_i by the definition, in fractions."""
    rows = [[Fraction(x) for x in row] for row in z.tolist()]
    form = None if A is None else [[Fraction(x) for x in row] for row in A.tolist()]
    sets = []
    for x in rows:
        query = x if form is None else [sum(a * b for a, b in zip(r, x)) for r in form]
        scores = [sum(a * b for a, b in zip(query, y)) for y in rows]
        sets.append([j for j, s in enumerate(scores) if s == max(scores)])
    return sets


def degenerate(count: int) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Ties, duplicates, zero tokens, huge ratios; A of any sign, singular or zero."""
    for _ in range(count):
        n, d = int(RNG.integers(1, 10)), int(RNG.integers(1, 5))
        z = RNG.integers(-2, 3, (n, d)).astype(float)
        kind = RNG.integers(6)
        if kind == 1:
            z = np.concatenate((z, z[: n // 2], -z[: n // 3]))
        elif kind == 2:
            z[RNG.integers(n)] *= 2.0 ** RNG.integers(40, 60)
        elif kind == 3:
            z *= 2.0 ** RNG.integers(-40, 40, (n, 1))
        elif kind == 4:
            z = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 0.1)
        elif kind == 5:
            z = z + RNG.integers(-1, 2, z.shape) * 2.0**-52
        A = [
            None,
            np.diag(RNG.integers(-1, 2, d)).astype(float),
            RNG.integers(-1, 2, (d, d)).astype(float),
            RNG.normal(size=(d, d)),
            np.zeros((d, d)),
        ][RNG.integers(5)]
        yield z, A


@pytest.mark.many
def test_degenerate_starts_have_the_sets_of_rational_arithmetic() -> None:
    for z, A in degenerate(2000):
        found = cy.Hardmax(A).followed(z)
        assert [row.tolist() for row in found] == rational_sets(z, A), (z.tolist(), A)


@pytest.mark.many
def test_plain_and_compiled_searches_find_the_same() -> None:
    """Rows of keys whose scores are exact: no rounding, so the rows are equal as they are."""
    from cynosure.engine.kernels.equality import row_classes
    from cynosure.engine.kernels.plain import plain_candidates, plain_classes
    from cynosure.engine.kernels.pruned import pruned_candidates

    for _ in range(300):
        n, m, d = (int(x) for x in RNG.integers(1, [40, 90, 9]))
        z = np.unique(RNG.integers(-3, 4, (m, d)).astype(float), axis=0)
        q, slack = RNG.integers(-3, 4, (n, d)).astype(float), np.full(n, 1e-9)
        for runner_up in (False, True):
            plain = plain_candidates(q, z, slack, runner_up=runner_up)
            fast = pruned_candidates(q, z, slack, runner_up=runner_up)
            np.testing.assert_array_equal(plain.indptr, fast.indptr)
            np.testing.assert_array_equal(plain.indices, fast.indices)
            np.testing.assert_array_equal(plain.gap, fast.gap)
        for one, other in zip(plain_classes(q), row_classes(q), strict=True):
            np.testing.assert_array_equal(one, other)


def test_both_ways_give_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dense search refused, or every compiled one: the same sets, layer by layer."""
    runs = []
    for few in (0, 10**9):
        monkeypatch.setattr(kernels, "FEW_SCORES", few)
        monkeypatch.setattr(kernels, "FEW_ROWS", few)
        monkeypatch.setattr(kernels, "spare", lambda *_: False)
        rng = np.random.default_rng(5)
        for d in (1, 2, 3, 9):
            z = np.concatenate((rng.normal(size=(90, d)), rng.integers(-1, 2, (30, d))))
            tr = cy.simulate(cy.PureAttention(alpha=0.5), z, layers=12)
            li = cy.limit(cy.PureAttention(alpha=0.5), z)
            runs.append((d, few, tr.z, tr.history, li))
    for (_, _, z, past, li), (_, _, other, same, limit) in zip(runs[:4], runs[4:], strict=True):
        np.testing.assert_array_equal(z, other)
        np.testing.assert_array_equal(past.born, same.born)
        np.testing.assert_array_equal(past.settled_at, same.settled_at)
        np.testing.assert_array_equal(li.points, limit.points)
        np.testing.assert_array_equal(li.rule, limit.rule)
        np.testing.assert_allclose(li.margin, limit.margin, rtol=1e-9, atol=1e-12)


# --- texts ---------------------------------------------------------------------------------------


def three_ways(module: Any, name: str, *args: Any, scratch: tuple[int, ...] = ()) -> list[Any]:
    """What NumPy, the loop as it stands, and the compiled loop return, with their scratch."""
    _compiled.load(module.__name__.removeprefix("cynosure."))
    kernels = _compiled._FUNCTIONS[module.__name__]
    (kernel,) = (k for k in kernels if isinstance(k, _compiled.Kernel) and k.__name__ == name)
    found = []
    for way in (kernel.plain, kernel.slow, kernel.compiled):
        mine = [a.copy() if i in scratch else a for i, a in enumerate(args)]
        out = way(*mine)
        found.append((*(out if isinstance(out, tuple) else (out,)), *(mine[i] for i in scratch)))
    return found


def assert_one_answer(found: list[Any]) -> None:
    for name, other in (("the loop", found[1]), ("compiled", found[2])):
        for mine, theirs in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(mine, theirs, err_msg=name)
            assert mine.dtype == theirs.dtype, (name, mine.dtype, theirs.dtype)


ALPHABET = "abzÉß日カ'’!?9٣., \n😀<>/é́\U00020000\0"
WORDS = st.sampled_from("a film not never so good , . ! isn't <br/> <b <script>x</script>".split())
TEXTS = st.lists(
    st.one_of(st.text(alphabet=ALPHABET, max_size=40), st.lists(WORDS, max_size=12).map(" ".join)),
    min_size=1, max_size=5,
)  # fmt: skip


@given(TEXTS)
def test_the_words_of_a_text_are_found_alike(texts: list[str]) -> None:
    from cynosure.classifier.kernels import plain, words
    from cynosure.classifier.text.vocabulary import Tokenizer, _negators, _tables

    negators = _negators(Tokenizer().negators, False)[0]
    code = np.frombuffer(("\0".join(texts) + "\0").encode("utf-32-le"), np.uint32)
    starts = np.concatenate(([0], np.cumsum([len(text) + 1 for text in texts])))
    found = three_ways(words, "_scan", code, starts, *_tables())
    assert_one_answer(found)
    h, start, stop, fresh, indptr = found[0]
    found = three_ways(words, "negated", h, fresh, indptr, negators, 3)
    assert_one_answer(found)
    for hashes in (h, found[0][0], np.where(np.arange(len(h)) % 3 == 1, plain.EMPTY, h)):
        assert_one_answer(three_ways(words, "negated", hashes, fresh, indptr, negators, 3))
        some = np.unique(hashes)[::2]
        pairs = plain.mixed(hashes[:-1], hashes[1:])
        keys, value = plain.table_of(np.unique(np.concatenate((some, pairs[::2])))[1:])
        seen = np.full(int(value.max()) + 1, -1, np.int32)
        for low, high in ((1, 1), (1, 2), (2, 3)):
            rest = low, high, keys, value
            assert_one_answer(three_ways(words, "distinct_terms", hashes, indptr, *rest, seen))
            assert_one_answer(three_ways(words, "occurrences", hashes, start, stop, *rest))


def test_a_table_finds_what_was_put_into_it() -> None:
    from cynosure.classifier.kernels import plain, words

    near = (np.arange(1, 400, dtype=np.uint64) << np.uint64(40)) + np.uint64(7)  # all want one slot
    for hashes in (RNG.integers(1, 2**63, 5000).astype(np.uint64), near, near[:1], near[:0]):
        keys, value = plain.table_of(hashes)
        every = np.concatenate((hashes, [np.uint64(3)]))
        _compiled.load("classifier.kernels.words")
        slots = [int(words._slot(keys, h)) for h in every]
        assert plain.slots(keys, every).tolist() == slots
        assert value[slots].tolist() == [*range(len(hashes)), -1]


@pytest.mark.many
def test_texts_along_rays_are_read_alike() -> None:
    from cynosure.classifier.kernels import rays

    for _ in range(300):
        texts, terms, count, d = (int(x) for x in RNG.integers([1, 1, 1, 2], [6, 40, 9, 4]))
        sizes = RNG.integers(0, min(terms, 9) + 1, texts)
        indptr = np.concatenate(([0], np.cumsum(sizes)))
        picked = [RNG.choice(terms, size, replace=False) for size in sizes]
        indices = np.concatenate([*picked, []]).astype(np.int32)
        ray = RNG.integers(0, count, terms)
        value = np.round(RNG.normal(size=count), 1)
        level = np.unique(np.abs(value), return_inverse=True)[1] + int((value != 0).all())
        for kappa in (0.0, 0.3, 1.0, 3.0):
            args = indptr, indices, ray, level, value, kappa
            assert_one_answer(three_ways(rays, "silent_levels", *args))
        direction = RNG.normal(size=(count, d))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        radius = RNG.choice([0.5, 1.0, 2.0], terms)
        cosine, anchor = direction @ direction.T, int(RNG.integers(count))
        length = RNG.choice([1.0, 3.0], texts)
        for apart in (False, True):
            args = indptr, indices, ray, radius, cosine, anchor, length, 2.5, 0.25, 1e-14, apart
            out = np.zeros((texts, count)), np.zeros(texts, np.intp)
            assert_one_answer(three_ways(rays, "ray_means", *args, *out, scratch=(11, 12)))


PROGRAM = """
import sys
import numpy as np
import cynosure as cy

z = np.random.default_rng(0).normal(size=(300, 2))
cy.simulate(cy.PureAttention(alpha=0.5), z, layers=20)
assert cy.limit(cy.PureAttention(alpha=0.5), z, deadline=3).certified
cy.Hardmax().followed(z)
from cynosure.classifier.explaining.loaded_model import LoadedModel
from cynosure.classifier.bundled import find
read = LoadedModel.load(find(None))
for text in ("good film", "It is not a great film; the acting was fine, the ending dull. " * 5):
    assert read.explain(text).overturn
assert read.read_with_words(["a dull, dull film"])[1]
sys.exit("numba" in sys.modules)
"""


def test_a_small_first_answer_imports_no_compiler() -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(cy.__file__).parent.parent)}
    assert subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=False).returncode == 0


def test_what_the_plain_way_has_cost_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compiled._Spent, "plain", 0.0)
    asked = [_compiled.spare(1e8, "engine.kernels.nobody") for _ in range(8)]
    assert asked == [True] * 5 + [False] * 3
    assert not _compiled.spare(1e9, "engine.kernels.nobody")
