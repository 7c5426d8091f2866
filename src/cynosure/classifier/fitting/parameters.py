"""The parameters of a classifier, checked at fit (scikit-learn stores them untouched), and as JSON
can hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, final

import numpy as np
from sklearn.utils import check_random_state, compute_class_weight

from ..text.stop_words import STOP_WORDS
from ..text.vocabulary import negators_of


@final
@dataclass(frozen=True)
class Parameters:
    """The parameters of a classifier, checked, as Python's own numbers."""

    dim: int
    ngrams: tuple[int, int]
    leaders: float | int
    words: float | int | str | None
    alpha: float | int
    layers: int
    lowercase: bool
    negation: bool | str | None
    negators: tuple[str, ...]
    tokenizer: Callable[[str], Any] | None
    stop_words: tuple[str, ...]
    C: float | int | None
    min_df: float | int | None
    max_features: int | None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Parameters:
        """The parameters `given` by name; a wrong one is refused by its name."""

        def checked(name: str, free: str | None, check: Callable[..., Any], *more: Any) -> Any:
            """The parameter, None or the word `free` as it is, else as `check` returns it."""
            x = given[name]
            return x if x is None or (isinstance(x, str) and x == free) else check(name, x, *more)

        budget = "a budget of at least 1"
        return cls(
            dim=whole("dim", given["dim"], 1),
            ngrams=_ngrams(given["ngrams"]),
            leaders=_number("leaders", given["leaders"], 1, budget),
            words=checked("words", "auto", _number, 1, f"{budget}, None or 'auto'"),
            alpha=_positive("alpha", given["alpha"], "a step > 0"),
            layers=whole("layers", given["layers"], 0),
            lowercase=_flag("lowercase", given["lowercase"]),
            negation=checked("negation", "opposite", _flag, ", 'opposite' or None"),
            negators=negators_of(given["negators"]),
            tokenizer=checked("tokenizer", None, _function),
            stop_words=_stop_words(given["stop_words"]),
            C=checked("C", None, _positive, "a number > 0, or None"),
            min_df=checked("min_df", None, _least_texts),
            max_features=checked("max_features", None, whole, 1, " or None"),
        )

    def threshold(self, total: float) -> float:
        """min_df as a number of texts: itself, or that share of `total` texts, as the decimal that
        was written: 0.07 of 100 texts is 7, while the product of floats is a little more."""
        if isinstance(self.min_df, int | None):
            return float(self.min_df or 1)
        return float(Fraction(repr(self.min_df)) * Fraction(total))


def _is_number(x: Any, kind: type) -> bool:
    return isinstance(x, kind) and not isinstance(x, bool | np.bool_)


def whole(name: str, x: Any, least: int, more: str = "") -> int:
    """x as an int, if it is a whole number >= least; refused by name otherwise."""
    if not _is_number(x, Integral) or x < least:
        raise ValueError(f"{name}: expected a whole number >= {least}{more}, got {x!r}")
    return int(x)


def _number(name: str, x: Any, least: int, expected: str) -> float | int:
    if not _is_number(x, Real) or not x >= least:
        raise ValueError(f"{name}: expected {expected}, got {x!r}")
    return int(x) if isinstance(x, Integral) else float(x)


def _positive(name: str, x: Any, expected: str) -> float | int:
    if not _is_number(x, Real) or not 0 < x < float("inf"):
        raise ValueError(f"{name}: expected {expected}, got {x!r}")
    return int(x) if isinstance(x, Integral) else float(x)


def _flag(name: str, x: Any, more: str = "") -> bool:
    if not isinstance(x, bool | np.bool_):
        raise ValueError(f"{name}: expected True or False{more}, got {x!r}")
    return bool(x)


def _function(name: str, x: Any) -> Callable[[str], Any]:
    if not callable(x):
        raise TypeError(f"{name}: expected a function from a text to its words, got {x!r}")
    return x


def _least_texts(name: str, x: Any) -> float | int:
    if _is_number(x, Integral) and x >= 1:
        return int(x)
    if _is_number(x, Real) and not isinstance(x, Integral) and 0 <= x <= 1:
        return float(x)
    raise ValueError(
        f"{name}: expected a number of texts (a whole number >= 1) or a share of them (a float "
        f"from 0.0 to 1.0), got {x!r}"
    )


def _stop_words(x: Any) -> tuple[str, ...]:
    if x is None:
        return ()
    if isinstance(x, str):
        if x != "english":
            raise ValueError(f"stop_words: expected None, 'english' or a list of words, got {x!r}")
        return tuple(sorted(STOP_WORDS))
    words = tuple(x)
    for word in words:
        if not isinstance(word, str):
            raise ValueError(f"stop_words: expected words, got {word!r}")
    return words


def _ngrams(x: Any) -> tuple[int, int]:
    try:
        low, high = x
    except (TypeError, ValueError):
        raise ValueError(f"ngrams: expected (low, high), got {x!r}") from None
    if not (_is_number(low, Integral) and _is_number(high, Integral)):
        raise ValueError(f"ngrams: expected two whole numbers (low, high), got {x!r}")
    return int(low), int(high)  # their order and size are the tokenizer's to judge


def seed_of(random_state: Any) -> int:
    """The seed of a fit: the int given, or one drawn from the RandomState (None: numpy's own)."""
    if _is_number(random_state, Integral):
        if not 0 <= random_state < 2**32:
            raise ValueError(f"random_state: expected 0 <= seed < 2^32, got {random_state!r}")
        return int(random_state)
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    raise ValueError(
        f"random_state: expected an int, a numpy RandomState or None, got {random_state!r}"
    )


def repetitions(sample_weight: Any, texts: int) -> np.ndarray:
    """How often each text counts (texts,): the weights given, or once each."""
    if sample_weight is None:
        return np.ones(texts)
    if hasattr(sample_weight, "to_numpy"):
        sample_weight = sample_weight.to_numpy()
    try:
        times = np.asarray(sample_weight, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"sample_weight: expected {texts} numbers >= 0") from None
    if times.ndim == 0 and np.isfinite(times):
        times = np.full(texts, float(times))
    if times.shape != (texts,):
        raise ValueError(
            f"sample_weight: expected {texts} numbers >= 0, got an array of shape {times.shape}"
        )
    bad = np.flatnonzero(~((times >= 0) & np.isfinite(times)))
    if len(bad):
        raise ValueError(
            f"sample_weight[{bad[0]}]: expected a number >= 0, got {float(times[bad[0]])}"
        )
    if not times.any():
        raise ValueError(
            "sample_weight: expected a weight > 0, got zero for every text; that removes them all"
        )
    return times


def class_weights(
    given: Any, classes: np.ndarray, number: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """The weight of each class: 1, what `given` says, or balanced (texts / classes / texts in it).

    `number` (texts,) is the class of each text, which counts `times`.
    """
    if isinstance(given, str) and given == "balanced":
        return times.sum() / (len(classes) * np.bincount(number, times, len(classes)))
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(
            f"class_weight: expected None, 'balanced' or a weight per label, got {given!r}"
        )
    weight = np.asarray(compute_class_weight(given, classes=classes, y=classes[number]), float)
    if not (np.isfinite(weight) & (weight > 0)).all():
        raise ValueError(f"class_weight: expected numbers > 0, got {given!r}")
    return weight


def as_json(name: str, x: Any) -> Any:
    """x as JSON holds it, numpy's numbers and fractions as Python's; refused by name where not."""
    if isinstance(x, np.generic):
        x = x.item()
    if x is None or isinstance(x, str | bool):
        return x
    if isinstance(x, Integral):
        return int(x)
    if isinstance(x, Real):
        return float(x)
    if isinstance(x, list | tuple | np.ndarray):
        return [as_json(name, y) for y in x]
    raise TypeError(f"{name}: a model file cannot hold {type(x).__name__} {x!r}; nothing written")
