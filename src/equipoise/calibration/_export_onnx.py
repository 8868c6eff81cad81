"""Fitted calibrators as an ONNX graph: scores and groups in, calibrated probabilities out.

Calibrators of one form (temperatures, say) are computed together: a row's parameters are gathered
by the place of its group. Everything is in doubles.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import ROW_SUM_TOLERANCE, shown, text_of, to_plain
from equipoise.calibration._calibrators import (
    Beta,
    BiasCorrected,
    Calibrator,
    Curve,
    Mixture,
    OneVsRest,
    Sigmoid,
    Temperature,
)
from equipoise.calibration._export import (
    LARGEST,
    Exportable,
    Grid,
    check_distinct,
    compare,
    grid_of,
    group_names,
)
from equipoise.calibration._onnx_graph import OnnxGraph, onnx_engine, run_onnx, write_onnx
from equipoise.calibration._scores import SMALLEST

TOLERANCE = 1e-6


def to_onnx(
    what: Exportable,
    path: str | os.PathLike[str] | None = None,
    group: str | Sequence[str] | None = None,
) -> Any:
    """Return the verified ModelProto, and write it where there is a path."""
    members = group_names(what, group)
    check_distinct(["scores", "probabilities", *members])
    graph, size = OnnxGraph(), len(what.classes)
    columns: str | int = "columns" if size == 2 else size
    given = graph.input("scores", ["n", columns])
    scores, sound = _scores(graph, given, what)
    prob = calibrated(graph, scores, sound, what, members)
    graph.output("probabilities", prob, ["n", size])
    kind = "probabilities" if what.from_proba else "logits"
    about = about_calibrators(what) | {"scores": kind}
    narrow = ", or (n, 1) for the second class alone" if size == 2 else ""
    text = f"Calibrated probabilities. scores: double (n, {size}) {kind}{narrow}. "
    model = graph.model(text + inputs_text(what, members), about)
    for single in (False, True)[: 2 if size == 2 else 1]:
        grid = grid_of(what, single=single)
        values = grid.values[:, 1:] if single else grid.values
        found = run_onnx(model, {"scores": values, **group_inputs(grid, members)})
        every = np.ones(len(found), bool)
        compare(found, grid, what, TOLERANCE, onnx_engine(), every)
    return write_onnx(model, path)


def calibrators_to_onnx(
    graph: OnnxGraph, logits: str, sound: str, fitted: Any, group: str | Sequence[str] | None = None
) -> tuple[str, list[str]]:
    """Add the calibrators of a fitted estimator to a graph that gives logits.

    Parameters
    ----------
    graph
        The graph; it gets an input of strings for each group column.
    logits
        Name of the logits (n, K), whatever the estimator's `from_proba`.
    sound
        Name of booleans (n, 1); a row where it is false gets NaN.
    fitted
        `TemperatureScaling`, `GroupTemperatureScaling` or `GroupCalibrator`.
    group
        Names of the group inputs, as in `GroupCalibrator.to_onnx`.

    Returns
    -------
    The name of the probabilities (n, K), and the names of the group inputs.
    """
    what: Exportable = fitted._exportable()
    members = group_names(what, group)
    return calibrated(graph, logits, sound, what, members), members


def about_calibrators(what: Exportable) -> dict[str, Any]:
    """Return what the metadata say of calibrators."""
    return {
        "classes": [to_plain(label) for label in what.classes],
        "groups": [to_plain(group) for group in what.calibrators.own],
        "unseen_group": what.unseen_group,
    }


def inputs_text(what: Exportable, members: Sequence[str]) -> str:
    """Return what a model's description says of groups and faulty rows."""
    unseen = {
        "error": "NaN",
        "global": "the common calibrator",
        "mixture": "the average of all groups",
    }[what.unseen_group]
    groups = f"{', '.join(map(shown, members))}: string (n,). A new group, or an empty text: "
    return f"{groups * bool(members)}{(unseen + '. ') * bool(members)}Faulty scores: NaN."


def group_inputs(grid: Grid, members: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the groups of a grid as a model takes them; the empty text is a missing one."""
    columns = grid.columns(len(members))
    return {
        name: np.array([_text(value) for value in values], dtype=object)
        for name, values in zip(members, columns, strict=True)
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else text_of(value) or ""


# --- input -----------------------------------------------------------------------------------


def _scores(graph: OnnxGraph, given: str, what: Exportable) -> tuple[str, str]:
    """Return logits (n, K), and whether each row (n, 1) is sound."""
    width = graph.op("Gather", graph.op("Shape", given), graph.integers(1), axis=0)
    if len(what.classes) == 2:
        # the second class is the last column; the first is there unless there is one column
        second = graph.op("Gather", given, graph.integers(-1), axis=1)
        first = graph.op("Gather", given, graph.integers(0), axis=1)
        alone = graph.op("Equal", width, graph.integers(1))
        zero = graph.op("Sub", second, second)
        other = graph.op("Sub", graph.constant(1.0), second) if what.from_proba else zero
        first = graph.op("Where", alone, other, first)
        given = graph.op("Concat", first, second, axis=1)
    low, high = (0.0, 1.0) if what.from_proba else (-LARGEST, LARGEST)
    within = graph.op(
        "And",
        graph.op("GreaterOrEqual", graph.reduce("Min", given), graph.constant(low)),
        graph.op("LessOrEqual", graph.reduce("Max", given), graph.constant(high)),
    )
    # minimum and maximum may pass over NaN, a sum does not
    total = graph.reduce("Sum", given)
    within = graph.op("And", within, graph.op("Not", graph.op("IsNaN", total)))
    # onnxruntime does not refuse a third column of two classes
    few = graph.op("LessOrEqual", width, graph.integers(len(what.classes)))
    within = graph.op("And", within, few)
    if not what.from_proba:
        return given, within
    off = graph.op("Abs", graph.op("Sub", total, graph.constant(1.0)))
    one = graph.op("LessOrEqual", off, graph.constant(ROW_SUM_TOLERANCE))
    clipped = graph.op("Max", given, graph.constant(SMALLEST))
    return graph.op("Log", clipped), graph.op("And", within, one)


def _slots(graph: OnnxGraph, what: Exportable, members: Sequence[str]) -> str:
    """Return each row's place among the groups (n,); their number if it has none."""
    codes, places = "", dict[tuple[Any, ...], int]()
    for j, name in enumerate(members):
        given = graph.input(name, ["n"], text=True)
        known = list(dict.fromkeys(key[j] for key in what.keys))
        texts, at = _vocabulary(known)
        own = graph.op(
            "LabelEncoder",
            given,
            domain="ai.onnx.ml",
            keys_strings=texts,
            values_int64s=at,
            default_int64=len(known),
        )
        heads = dict.fromkeys(key[: j + 1] for key in what.keys)
        now = {head: i for i, head in enumerate(heads)}
        if not j:
            codes, places = own, now
            continue
        table = np.full((len(places) + 1, len(known) + 1), len(now))
        for head, place in now.items():
            table[places[head[:-1]], known.index(head[-1])] = place
        width = graph.constant(len(known) + 1, np.int64)
        pair = graph.op("Add", graph.op("Mul", codes, width), own)
        codes, places = graph.op("Gather", graph.constant(table.ravel(), np.int64), pair), now
    return codes


def _vocabulary(values: Sequence[Hashable]) -> tuple[list[str], list[int]]:
    """Return the texts of values, and the place of the value that each stands for."""
    places: dict[str, int] = {}
    for i, value in enumerate(values):
        if value == "":
            raise ValueError("a group is the empty text, which is a missing one in ONNX; rename it")
        if places.setdefault(_text(value), i) != i:
            raise ValueError(f"two groups have the text {_text(value)!r}; rename one")
    for i, value in enumerate(values):  # 1.0 may come as '1.0', and True as 'True'
        for text in (str(value), text_of(value) or ""):
            places.setdefault(text, i)
    return list(places), list(places.values())


# --- calibrators -----------------------------------------------------------------------------


def calibrated(
    graph: OnnxGraph, logits: str, sound: str, what: Exportable, members: Sequence[str]
) -> str:
    """Add the calibrators of logits (n, K), with an input for each group column.

    The result is (n, K), NaN where `sound` (n, 1) is false or a group is refused.
    """
    own, unseen = list(what.calibrators.own.values()), what.unseen
    if own:
        slots = _slots(graph, what, members)
    else:
        rows = graph.op("Gather", graph.op("Shape", logits), graph.integers(0), axis=0)
        slots = graph.op("ConstantOfShape", rows)
        slots = graph.op("Cast", slots, to="INT64")
    if unseen is None:
        last = graph.constant(len(own), np.int64)
        known = graph.op("Unsqueeze", graph.op("Less", slots, last), graph.integers(1))
        sound = graph.op("And", sound, known)
    every = [*own, what.calibrators.common if unseen is None else unseen]
    prob = _Builder(graph, logits, len(what.classes)).apply(every, slots)
    return graph.op("Where", sound, prob, graph.constant(np.nan))


class _Builder:
    """Adds calibrators of the same scores (n, K)."""

    def __init__(self, graph: OnnxGraph, scores: str, count: int) -> None:
        self.graph, self.op, self.scores, self.count = graph, graph.op, scores, count
        self._odds: dict[int, str] = {}

    def apply(self, every: Sequence[Calibrator], slots: str) -> str:
        """Return probabilities (n, K), of a calibrator for each place."""
        forms: dict[Any, list[int]] = {}
        for i, calibrator in enumerate(every):
            forms.setdefault(_form(calibrator), []).append(i)
        result = ""
        for places in forms.values():
            alike = [every[i] for i in places]
            # any place will do for rows of other forms, which another part overwrites
            local = np.zeros(len(every), np.int64)
            local[places] = np.arange(len(places))
            own = self.op("Gather", self.graph.constant(local, np.int64), slots)
            prob = self._alike(alike, own)
            if result:
                mine = np.zeros((len(every), 1), bool)
                mine[places] = True
                here = self.op("Gather", self.graph.constant(mine, np.bool_), slots)
                prob = self.op("Where", here, prob, result)
            result = prob
        return result

    def _values(self, values: Sequence[Any], slots: str) -> str:
        """Return each row's parameters (n, 1) or (n, K); all rows' if they are equal."""
        array = np.array(values, np.float64).reshape(len(values), -1)
        if (array == array[0]).all():
            return self.graph.constant(array[:1])
        return self.op("Gather", self.graph.constant(array), slots)

    def _alike(self, alike: Sequence[Any], slots: str) -> str:
        first = alike[0]

        def of(field: Callable[[Any], Any]) -> str:
            return self._values([field(c) for c in alike], slots)

        if isinstance(first, Temperature):
            return self._softmax(self.op("Div", self.scores, of(lambda c: c.temperature)))
        if isinstance(first, BiasCorrected):
            scaled = self.op("Div", self.scores, of(lambda c: c.temperature))
            return self._softmax(self.op("Add", scaled, of(lambda c: c.bias)))
        if isinstance(first, Mixture):
            total = ""
            for i in range(len(first.weights)):
                part = self.apply([c.calibrators[i] for c in alike], slots)
                part = self.op("Mul", part, self._values([c.weights[i] for c in alike], slots))
                total = self.op("Add", total, part) if total else part
            return self.op("Min", total, self.graph.constant(1.0))
        if isinstance(first, OneVsRest):
            return self._one_vs_rest([c.curves for c in alike], slots)
        mean = self.op("Div", self.graph.reduce("Sum", self.scores), self._number(self.count))
        scaled = self.op("Mul", self.op("Sub", self.scores, mean), of(lambda c: c.scale))
        return self._softmax(self.op("Add", scaled, of(lambda c: c.bias)))

    def _number(self, value: float) -> str:
        return self.graph.constant(value)

    def _softmax(self, logits: str) -> str:
        each = self.op("Exp", self.op("Sub", logits, self.graph.reduce("Max", logits)))
        return self.op("Div", each, self.graph.reduce("Sum", each))

    # --- one class against the rest ---

    def _log_odds(self, k: int) -> str:
        """Return the log-odds (n, 1) of a class against the rest."""
        if k in self._odds:
            return self._odds[k]
        own = self.op("Gather", self.scores, self.graph.integers(k), axis=1)
        others = [j for j in range(self.count) if j != k]
        rest = self.op("Gather", self.scores, self.graph.integers(*others), axis=1)
        if self.count > 2:
            largest = self.graph.reduce("Max", rest)
            each = self.op("Exp", self.op("Sub", rest, largest))
            own = self.op("Sub", own, largest)
            rest = self.op("Log", self.graph.reduce("Sum", each))
        self._odds[k] = self.op("Sub", own, rest)
        return self._odds[k]

    def _one_vs_rest(self, curves: Sequence[Sequence[Curve]], slots: str) -> str:
        if len(curves[0]) == 1:
            p = self._curve([own[0] for own in curves], self._log_odds(1), slots)
            return self.op("Concat", self.op("Sub", self._number(1.0), p), p, axis=1)
        parts = [
            self._curve([own[k] for own in curves], self._log_odds(k), slots)
            for k in range(self.count)
        ]
        each = self.op("Concat", *parts, axis=1)
        total = self.graph.reduce("Sum", each)
        share = self.op("Div", each, total)
        some = self.op("Greater", total, self._number(0.0))
        return self.op("Where", some, share, self._number(1.0 / self.count))

    def _curve(self, curves: Sequence[Any], s: str, slots: str) -> str:
        first = curves[0]
        if isinstance(first, Sigmoid):
            slope = self._values([c.slope for c in curves], slots)
            intercept = self._values([c.intercept for c in curves], slots)
            return self._expit(self.op("Add", self.op("Mul", slope, s), intercept))
        if isinstance(first, Beta):
            a, b, c = (
                self._values([getattr(c, name) for c in curves], slots) for name in ("a", "b", "c")
            )
            yes = self.op("Mul", a, self._log_expit(s))
            no = self.op("Mul", b, self._log_expit(self.op("Neg", s)))
            return self._expit(self.op("Add", self.op("Sub", yes, no), c))
        return self._steps(curves, s, slots)

    def _expit(self, x: str) -> str:
        below = self.op("Exp", self.op("Neg", x))  # infinite at most, and 1 / (1 + inf) is 0
        return self.op("Div", self._number(1.0), self.op("Add", self._number(1.0), below))

    def _log_expit(self, s: str) -> str:
        far = self.op("Exp", self.op("Neg", self.op("Abs", s)))
        log = self.op("Log", self.op("Add", self._number(1.0), far))
        return self.op("Sub", self.op("Min", s, self._number(0.0)), log)

    def _steps(self, curves: Sequence[Any], s: str, slots: str) -> str:
        """Return interpolated values, whose interval a binary search finds in log2 steps."""
        size = 1 << (max(len(c.thresholds) for c in curves) - 1).bit_length()
        ends, values, slopes = (np.zeros((len(curves), size)) for _ in range(3))
        for row, c in enumerate(curves):
            t, v = np.array(c.thresholds), np.array(c.values)
            rise = np.zeros(len(t))
            np.divide(np.diff(v), np.diff(t), out=rise[:-1], where=np.diff(t) > 0.0)
            ends[row], values[row, : len(t)], slopes[row, : len(t)] = np.inf, v, rise
            ends[row, : len(t)] = t
        tables = [self.graph.constant(x.ravel()) for x in (ends, values, slopes)]
        column = self.op("Unsqueeze", slots, self.graph.integers(1))
        place = self.op("Mul", column, self.graph.constant(size, np.int64))
        lowest = self.op("Gather", tables[0], place)
        s = self.op("Max", s, lowest)
        step = size // 2
        while step:
            further = self.op("Add", place, self.graph.constant(step, np.int64))
            reached = self.op("LessOrEqual", self.op("Gather", tables[0], further), s)
            place = self.op("Where", reached, further, place)
            step //= 2
        end, value, slope = (self.op("Gather", table, place) for table in tables)
        return self.op("Add", self.op("Mul", slope, self.op("Sub", s, end)), value)


def _form(calibrator: Any) -> Any:
    """Return what calibrators need to have in common to be computed together."""
    if isinstance(calibrator, Mixture):
        return "mixture", tuple(map(_form, calibrator.calibrators))
    if isinstance(calibrator, OneVsRest):
        return "curves", tuple(map(type, calibrator.curves))
    return type(calibrator)
