"""The label of each column of probabilities, in Python and in all commands."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs._categories import encode, recode, refuse_missing
from equipoise._inputs._columns import column
from equipoise._inputs._errors import ColumnOrderWarning, InputError, warn_caller
from equipoise._inputs._names import shown
from equipoise._inputs._values import match, text_of


def column_labels(
    present: Sequence[Any],
    n_classes: int,
    *,
    columns: Sequence[str] | None = None,
    labels: Any = None,
    positive: Any = None,
    name: str = "y_true",
) -> tuple[Hashable, ...]:
    """Return the label of each class.

    The first of these that applies decides: `labels`, in the order of the columns; `positive`, the
    label whose probability the only column holds; the names of K columns that match the labels one
    to one (a name is a label, or ends in it); the sorted labels, if there are K of them; the
    integers 0..K-1, if the labels are some of these. `labels` and `positive` are matched by text
    too, so "1" is the number 1. `present` are the distinct labels of the rows, in sorted order;
    `name` is what messages call them.

    >>> column_labels(["no", "yes"], 2), column_labels([1, 2], 3, columns=["p_1", "p_2", "p_3"])
    (('no', 'yes'), (1, 2, 3))
    """
    if labels is not None and positive is not None:
        raise InputError(
            "labels and positive both say which label a column stands for",
            "pass one of the two",
            "pass --labels or --positive",
        )
    if labels is not None:
        return _given(present, n_classes, labels, name)
    if positive is not None:
        return _with_positive(present, n_classes, columns, positive, name)
    if columns is not None and len(columns) == n_classes:
        named = _by_name(present, columns)
        if named is not None:
            if [label for label in named if label in present] != list(present):
                pairs = ", ".join(
                    f"{shown(c)} is {shown(k)}" for c, k in zip(columns, named, strict=True)
                )
                _warn(
                    f"the names of the probability columns, not their order, decide their labels "
                    f"({pairs})",
                    "pass labels= to override this",
                    "pass --labels to override this",
                )
            return named
    if len(present) == n_classes:
        if columns is not None and len(columns) == 1 and _ends_in(columns[0], present[0]):
            _warn(
                f"column {shown(columns[0])!r} is taken for the probability of "
                f"{shown(present[1])!r}, the second label in sorted order",
                f"pass positive={present[0]!r} if it is that of {present[0]!r}",
                f"pass --positive {shown(present[0])} if it is that of {shown(present[0])!r}",
            )
        return tuple(present)
    integers = all(isinstance(v, int | np.integer) for v in present)
    if integers and present and present[0] >= 0 and present[-1] < n_classes:
        as_bool = all(isinstance(v, bool) for v in present)
        return (False, True) if as_bool and n_classes == 2 else tuple(range(n_classes))
    some = ", ".join(repr(v) for v in present[:5]) + (", ..." if len(present) > 5 else "")
    raise InputError(
        f"{name} has {len(present)} distinct labels ({some}) for {n_classes} columns of "
        "probabilities",
        "pass labels= with the label of each column, in order",
        "pass --labels with the label of each column, in order",
    )


def _given(present: Sequence[Any], n_classes: int, labels: Any, name: str) -> tuple[Hashable, ...]:
    plain = [v.item() if isinstance(v, np.generic) else v for v in labels]
    given = match(plain, present)
    if len(given) != n_classes or len(set(given)) != n_classes:
        raise InputError(
            f"{len(given)} labels ({', '.join(map(repr, given))}) are given for {n_classes} "
            "columns of probabilities",
            f"labels must name the {n_classes} columns of y_prob, each once",
            f"--labels must name {n_classes} labels, each once",
        )
    unknown = [v for v in present if v not in given]
    if unknown:
        raise InputError(
            f"{name} contains {unknown[0]!r}, which is not in labels={given!r}",
            "name every label",
            f"name every label with --labels, {shown(unknown[0])} too",
        )
    return given


def _with_positive(
    present: Sequence[Any], n_classes: int, columns: Sequence[str] | None, positive: Any, name: str
) -> tuple[Hashable, ...]:
    if n_classes != 2 or (columns is not None and len(columns) > 1):
        raise InputError(
            "positive is for a single column of probabilities",
            "pass labels= for several",
            "pass --labels for several",
        )
    (label,) = match([positive], present)
    others = [v for v in present if v != label]
    if label not in present or len(others) != 1:
        known = ", ".join(shown(v) for v in present[:5])
        raise InputError(
            f"{shown(positive)!r} cannot be the positive label: {name} has "
            f"{len(present)} distinct labels ({known})",
            "pass one of two labels, or labels= with both",
            "pass --positive with one of two labels, or --labels with both",
        )
    return (others[0], label)


def _by_name(present: Sequence[Any], columns: Sequence[str]) -> tuple[Hashable, ...] | None:
    """Return the label that each name is or ends in, None where they do not match one to one."""
    texts = {str(text_of(label)): label for label in present}
    found = []
    for name in columns:
        # the longest: prob_10 ends in 0 as well as in 10
        ends = sorted((t for t in texts if _ends_in(name, t)), key=len)
        found.append(ends[-1] if ends else None)
    if len({t for t in found if t is not None}) != len(texts) or not texts:
        return None
    if None not in found:
        matched = tuple(texts[str(t)] for t in found)
        return matched if len(set(matched)) == len(columns) else None
    # a label that no row has is what follows the prefix that the other names share
    pairs = zip(columns, found, strict=True)
    starts = {name[: len(name) - len(text)] for name, text in pairs if text is not None}
    start = starts.pop()
    rest = [name.removeprefix(start) for name in columns]
    if starts or not all(name.startswith(start) and name != start for name in columns):
        return None
    matched = match(rest, present)
    return matched if len(set(matched)) == len(columns) else None


def _ends_in(name: str, label: Any) -> bool:
    text = str(text_of(label)).casefold()
    own = name.strip().casefold()
    return own.endswith(text) or str(text_of(name)).casefold() == text


def _warn(problem: str, remedy: str, option: str) -> None:
    warn_caller(ColumnOrderWarning(problem, remedy, option))


def encode_labels(
    y: Any,
    n_classes: int,
    labels: Any,
    name: str = "y_true",
    *,
    columns: Sequence[str] | None = None,
    positive: Any = None,
) -> tuple[NDArray[np.signedinteger[Any]], tuple[Hashable, ...]]:
    """Encode labels as column numbers of the probabilities, and say what the columns stand for."""
    codes, present = encode(column(y, name), name)
    refuse_missing(codes, name)
    resolved = column_labels(
        present, n_classes, columns=columns, labels=labels, positive=positive, name=name
    )
    return recode(codes, present, resolved), resolved
