"""Temperatures fitted to a file of predictions, and applied to one of any size."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from equipoise._files import replace_file
from equipoise._inputs import group_name, text_of, typed
from equipoise.calibration import GroupTemperatureScaling
from equipoise.cli._columns import Codes, Faults, Floats, Texts, distinct, probabilities
from equipoise.cli._shared import own_values
from equipoise.cli._stream import Reader

# --- fit -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Rows of a file: probabilities (n,) or (n, K), and codes of their labels and groups."""

    prob: Floats
    y: Codes
    group: Codes
    classes: list[Hashable]
    groups: list[Hashable]


def read_predictions(
    reader: Reader,
    *,
    label: str,
    prob: Sequence[str],
    group: Sequence[str],
    classes: Sequence[str] | None,
    positive: str | None,
) -> Predictions:
    """Read what temperatures are fitted to: a few bytes for each row."""
    faults = Faults()
    parts: list[Floats] = []
    indices: tuple[dict[Texts, int], dict[Texts, int]] = ({}, {})
    found: tuple[list[Codes], list[Codes]] = ([], [])
    start = 0
    for batch in reader.batches([label, *prob, *group]):
        parts.append(probabilities(batch, prob, start, faults))
        for names, index, codes in zip(((label,), group), indices, found, strict=True):
            local, rows = distinct(batch, names, is_text=reader.is_text)
            own = [-1 if None in row else index.setdefault(row, len(index)) for row in rows]
            codes.append(np.array(own)[local])
        start += len(batch)
    if not start:
        raise ValueError(f"{reader.path} has no rows")
    faults.check()
    labels, members = (np.concatenate(codes) for codes in found)
    rename = "drop those rows, or give them a name such as 'unknown'"
    faults.add("label", labels < 0, 0, f"column {label!r} has no label", rename)
    where = f"column{'s' * (len(group) > 1)} {', '.join(group)}"
    faults.add("group", members < 0, 0, f"there is no group in {where},", rename)
    faults.check()

    present = [str(text) for (text,) in indices[0]]
    texts, values = _classes(present, label, prob, classes, positive)
    at = np.array([texts.index(t) if t in texts else -1 for t in present])
    y = at[labels]
    stranger = labels[np.argmax(y < 0)]
    faults.add(
        "class",
        y < 0,
        0,
        f"column {label!r} is none of the classes {', '.join(texts)}, "
        f"the first {present[stranger]!r},",
        "correct them, or name all classes with --prob and --classes",
    )
    faults.check()
    if len(set(y.tolist())) < 2:
        raise ValueError(
            f"column {label!r} has only one value, {present[0]!r}; temperatures need rows of "
            "more than one class"
        )
    groups, order = _groups(list(indices[1]))
    return Predictions(np.concatenate(parts), y, order[members], values, groups)


def _classes(
    present: list[str],
    label: str,
    prob: Sequence[str],
    classes: Sequence[str] | None,
    positive: str | None,
) -> tuple[list[str], list[Hashable]]:
    """Return the class that each probability stands for, as text and as value."""
    size = max(2, len(prob))
    if classes is not None:
        texts = [str(text_of(c)) for c in classes]
        if len(texts) != size or len(set(texts)) != size:
            raise ValueError(
                f"--classes must name {size} classes, each once, got {', '.join(texts)}"
            )
    elif len(prob) > 1:
        names = [str(text_of(name)) for name in prob]
        short = [str(text_of(name.removeprefix("prob_"))) for name in prob]
        texts = names if set(present) <= set(names) else short
        if not set(present) <= set(texts):
            shown = ",".join(sorted(present)[:size])
            raise ValueError(
                f"the labels ({', '.join(sorted(present)[:5])}) are not the names of the --prob "
                f"columns; pass --classes with the label of each of them in the same order, such "
                f"as --classes {shown}"
            )
    else:
        if len(present) > 2:
            raise ValueError(
                f"column {label!r} has {len(present)} values "
                f"({', '.join(sorted(present)[:5])}{', ...' * (len(present) > 5)}), and one --prob "
                "is for two; pass one for each class"
            )
        values = typed(present)
        texts = sorted(present, key=values.__getitem__)
        if positive is not None:
            wanted = str(text_of(positive))
            if wanted not in present:
                raise ValueError(
                    f"--positive {positive} is not in column {label!r} ({', '.join(texts)})"
                )
            texts = [*(t for t in texts if t != wanted), wanted]
    values = typed(texts)
    return texts, [values[t] for t in texts]


def _groups(rows: Sequence[Texts]) -> tuple[list[Hashable], Codes]:
    """Return the groups in sorted order, and the position there of each of the rows."""
    kinds = [typed({str(row[j]) for row in rows}) for j in range(len(rows[0]))]
    keys = [tuple(kind[str(t)] for kind, t in zip(kinds, row, strict=True)) for row in rows]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    place = np.empty(len(keys), np.int64)
    place[order] = np.arange(len(keys))
    return [keys[i] if len(kinds) > 1 else keys[i][0] for i in order], place


def fit(
    rows: Predictions, *, unseen_group: Any, shrinkage: float
) -> tuple[GroupTemperatureScaling, NDArray[Any], NDArray[Any]]:
    """Return the temperatures, and each row's label and group by its own value."""
    scaling = GroupTemperatureScaling(
        unseen_group=unseen_group, shrinkage=shrinkage, from_proba=True
    )
    y, group = own_values(rows.classes, rows.y), own_values(rows.groups, rows.group)
    scaling.fit(rows.prob, y, sensitive_features=group, labels=rows.classes)
    return scaling, y, group


def save(
    out: Path, scaling: GroupTemperatureScaling, columns: Mapping[str, str | Sequence[str]]
) -> None:
    """Write what `GroupTemperatureScaling.save` does, and the names of the columns."""
    replace_file(out, json.dumps({**scaling.to_dict(), "columns": columns}, indent=2).encode())


# --- apply -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Saved:
    """Temperatures, and the columns that they were fitted to; empty if the file does not say."""

    scaling: GroupTemperatureScaling
    prob: tuple[str, ...]
    group: tuple[str, ...]


def load(path: Path) -> Saved:
    """Read what `save` or `GroupTemperatureScaling.save` wrote; anything else is refused."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        scaling = GroupTemperatureScaling.from_dict(data)
        named = data.get("columns", {"prob": [], "group": []})
        prob, group = named["prob"], named["group"]
        for names in (prob, group):
            if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                raise ValueError(f"{names!r} are no names of columns")
        if not scaling.temperatures_ or abs(sum(scaling.shares_.values()) - 1.0) > 1e-6:
            raise ValueError("the shares of its groups do not add up to 1")
        if scaling.classes_.ndim != 1 or len(scaling.classes_) < 2:
            raise ValueError("it has fewer than two classes")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error).removeprefix("not a saved GroupTemperatureScaling: ")
        raise ValueError(f"{path} is no file of temperatures, or damaged: {reason}") from None
    return Saved(scaling, tuple(prob), tuple(group))


class Calibration:
    """Calibrates batches of a file, and counts its rows.

    Attributes
    ----------
    schema
        Of the batches given back: all columns, and the calibrated ones in the place of their
        originals or after all others, named ``calibrated_`` and the original.
    rows, unseen
        Number of rows so far, and of those among them whose group has no temperature.
    """

    def __init__(
        self,
        reader: Reader,
        scaling: GroupTemperatureScaling,
        prob: Sequence[str],
        group: Sequence[str],
        *,
        replace: bool,
    ) -> None:
        for name in (*prob, *group):
            reader.check(name)
        self.reader, self.prob, self.group, self.replace = reader, prob, group, replace
        self.rows = self.unseen = 0
        known = list(scaling.temperatures_)
        self._shown = "; ".join(group_name(g) for g in known[:8]) + "; ..." * (len(known) > 8)
        keys = [tuple(map(text_of, g if isinstance(g, tuple) else (g,))) for g in known]
        if group and {len(key) for key in keys} != {len(group)}:
            raise ValueError(
                f"the temperatures are of {len(keys[0])} group column(s), but --group names "
                f"{len(group)}: {', '.join(group)}"
            )
        self._index = {key: i for i, key in enumerate(keys)}
        if len(self._index) < len(keys):
            raise ValueError("the file of temperatures has two groups that are written the same")
        # the groups by position, which is quicker than by value
        self._scaling = copy.copy(scaling)
        self._scaling.from_proba = True
        self._scaling.temperatures_ = dict(enumerate(scaling.temperatures_.values()))
        self._scaling.shares_ = dict(enumerate(scaling.shares_.values()))
        self.schema = self._schema()

    def _schema(self) -> pa.Schema:
        schema = self.reader.schema
        for name in self.prob:
            field = pa.field(name if self.replace else f"calibrated_{name}", pa.float64())
            if self.replace:
                schema = schema.set(schema.get_field_index(name), field)
                continue
            if field.name in schema.names:
                raise ValueError(
                    f"{self.reader.path} already has a column {field.name!r}; rename it or take it "
                    "out, or write in the place of the originals with --replace"
                )
            schema = schema.append(field)
        return schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give the calibrated batches; raise at the end, having counted, if rows were wrong."""
        faults = Faults()
        for batch in self.reader.batches():
            prob = probabilities(batch, self.prob, self.rows, faults)
            group = self._groups(batch, faults)
            self.rows += len(batch)
            if not faults:
                calibrated = self._scaling.predict_proba(prob, sensitive_features=group)
                yield self._with(batch, calibrated if prob.ndim == 2 else calibrated[:, 1:])
        if not self.rows:
            raise ValueError(f"{self.reader.path} has no rows")
        faults.check()

    def _groups(self, batch: pa.RecordBatch, faults: Faults) -> Codes:
        """Return each row's group by its position; -1 if it has no temperature."""
        if self.group:
            # a group that is called NA is one, if it has a temperature, and else not seen
            local, rows = distinct(batch, self.group, is_text=False)
            codes = np.array([self._index.get(row, -1) for row in rows])[local]
        else:
            local, rows, codes = np.zeros(0, np.int64), [], np.full(len(batch), -1)
        unseen = codes < 0
        self.unseen += int(unseen.sum())
        if self._scaling.unseen_group == "error" and unseen.any():
            # without its column every group would be unseen, and that is refused beforehand
            first = rows[local[np.argmax(unseen)]]
            faults.add(
                "group",
                unseen,
                self.rows,
                f"group {group_name(first)!r} is not among those with a temperature "
                f"({self._shown}), and such are",
                "correct them, or pass --unseen-group global or mixture",
            )
        return codes

    def _with(self, batch: pa.RecordBatch, values: NDArray[np.float64]) -> pa.RecordBatch:
        columns = list(batch.columns)
        for name, column in zip(self.prob, values.T, strict=True):
            added = pa.array(np.ascontiguousarray(column))
            if self.replace:
                columns[self.schema.get_field_index(name)] = added
            else:
                columns.append(added)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
