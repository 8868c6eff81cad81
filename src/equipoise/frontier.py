"""Choosing among runs: the Pareto frontier of two measures, and one run within an accuracy slack.

A point is a pair, usually (PE, ECE), and lower is better in both. Nothing here trains or measures
a model: arrays and tables in, masks, curves and one row out.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from equipoise.inputs import matrix

__all__ = [
    "balanced_score",
    "choose",
    "curve",
    "frontier_frequency",
    "hypervolume",
    "pareto_front",
    "pareto_mask",
    "select",
    "within_slack",
]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Objective = Literal["balanced", "pe", "ece"]

OBJECTIVES = ("balanced", "pe", "ece")
CALIBRATIONS = ("", "common", "group")

BASELINE = "ce"
"""The technique whose medians are the unit of the balanced score."""

TOLERANCE = 1e-9
"""Differences of accuracy closer than this to the slack equal it."""

SLICE = 1 << 12
"""Rows turned into dictionaries at a time."""


# --- the frontier ----------------------------------------------------------------------------


def pareto_mask(points: Any) -> Mask:
    """Return which points are on the frontier.

    A point is off it if another is no worse in both coordinates and better in at least one. Equal
    points therefore stay together. A point that is not finite is never on the frontier and
    excludes nothing.

    Parameters
    ----------
    points
        (point, 2); lower is better in both.

    Examples
    --------
    >>> pareto_mask([[1, 3], [2, 2], [2, 3], [2, 2], [3, 1]]).tolist()
    [True, True, False, True, True]
    """
    first, second = np.ascontiguousarray(_points(points).T)
    mask = np.zeros(len(first), dtype=bool)
    index = np.flatnonzero(np.isfinite(first) & np.isfinite(second))
    if not len(index):
        return mask
    index = index[np.argsort(first[index])]
    first, second = first[index], second[index]
    # runs of equal first coordinates: only the least of a run can be on the frontier, and it is
    # if it is below all runs before it
    new = np.concatenate([[True], first[1:] != first[:-1]])
    least = np.minimum.reduceat(second, np.flatnonzero(new))
    before = np.concatenate([[np.inf], np.minimum.accumulate(least)[:-1]])
    bound = np.where(least < before, least, -np.inf)
    mask[index] = second == bound[np.cumsum(new) - 1]
    return mask


def pareto_front(points: Any) -> Floats:
    """Return the distinct points of the frontier (m, 2), the first coordinate ascending.

    The second coordinate then descends. A line through these points is the curve of the figures.

    Examples
    --------
    >>> pareto_front([[3, 1], [2, 2], [2, 3], [2, 2]]).tolist()
    [[2.0, 2.0], [3.0, 1.0]]
    """
    array = _points(points)
    front = array[pareto_mask(array)]
    # on the frontier the first coordinate determines the second
    distinct: Floats = front[np.unique(front[:, 0], return_index=True)[1]]
    return distinct


def curve(points: Any, at: Any) -> Floats:
    """Return the second coordinate of the frontier, linearly interpolated.

    Parameters
    ----------
    points
        (point, 2); the frontier is found first.
    at
        First coordinates, of any shape. Outside the range of the frontier the result is nan.

    Examples
    --------
    >>> curve([[1, 3], [3, 1], [3, 3]], [0, 1, 2, 3, 4]).tolist()
    [nan, 3.0, 2.0, 1.0, nan]
    """
    where = np.asarray(at, dtype=np.float64)
    front = pareto_front(points)
    if not len(front):
        return np.full(where.shape, np.nan)
    return np.asarray(np.interp(where, front[:, 0], front[:, 1], left=np.nan, right=np.nan))


def hypervolume(points: Any, reference: Any) -> float:
    """Return the area that the points dominate, bounded by the reference point; more is better.

    Parameters
    ----------
    points
        (point, 2); those not better than the reference in both coordinates count nothing, nor do
        those that are not finite.
    reference
        Two finite numbers. Frontiers are comparable only with the same reference.

    Examples
    --------
    >>> hypervolume([[1, 2], [2, 1], [5, 0]], (3, 3))
    3.0
    """
    bound = np.asarray(reference, dtype=np.float64)
    if bound.shape != (2,) or not np.isfinite(bound).all():
        raise ValueError(
            f"reference must be two finite numbers, worse than the points, got {reference!r}"
        )
    array = _points(points)
    front = pareto_front(array[(array[:, 0] < bound[0]) & (array[:, 1] < bound[1])])
    width = np.diff(front[:, 0], append=bound[0])
    return float(np.sum(width * (bound[1] - front[:, 1])))


def frontier_frequency(points: Any, *, n_bootstrap: int = 1000, seed: int = 0) -> Floats:
    """Return how often each point is on the frontier when the replicates are drawn anew.

    Each draw takes as many replicates as there are, with replacement, and averages each point over
    them. A point that is not finite in a replicate drawn is not on the frontier of that draw.

    Parameters
    ----------
    points
        (replicate, point, 2): the same points measured with several seeds or splits.
    n_bootstrap
        Number of draws.
    seed
        Of the draws; the same seed gives the same result.

    Returns
    -------
    Frequencies (point,), between 0 and 1.

    Notes
    -----
    Points that are equal in every replicate have equal frequencies. Averages that are equal by
    chance may still differ by rounding.

    Examples
    --------
    The second point is on the frontier unless the first replicate alone is drawn, which has
    probability 1/4.

    >>> frequency = frontier_frequency([[[1, 1], [2, 2]], [[1, 1], [2, -2]]])
    >>> float(frequency[0]), bool(abs(frequency[1] - 0.75) < 0.05)
    (1.0, True)
    """
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 3 or not len(array) or array.shape[2] != 2:
        raise ValueError(
            f"points must be (replicate, point, 2) with at least one replicate, "
            f"got shape {array.shape}"
        )
    whole = isinstance(n_bootstrap, int | np.integer) and not isinstance(n_bootstrap, bool)
    if not whole or n_bootstrap < 1:
        raise ValueError(f"n_bootstrap must be a positive integer, got {n_bootstrap!r}")
    n = len(array)
    drawn = np.random.default_rng(seed).integers(0, n, (n_bootstrap, n))
    cell = drawn + n * np.arange(n_bootstrap)[:, None]
    count = np.bincount(cell.ravel(), minlength=n_bootstrap * n).reshape(n_bootstrap, n)
    on = np.zeros(array.shape[1])
    # few replicates have few distinct draws
    for row, times in zip(*np.unique(count, axis=0, return_counts=True), strict=True):
        taken = np.flatnonzero(row)
        # not a product of matrices, which may round equal points differently;
        # inf - inf is nan, and neither is on the frontier
        with np.errstate(invalid="ignore"):
            mean = np.average(array[taken], axis=0, weights=row[taken])
        on += times * pareto_mask(mean)
    return on / n_bootstrap


def _points(points: Any) -> Floats:
    array = np.asarray(points, dtype=np.float64)
    if array.shape == (0,):
        return array.reshape(0, 2)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"points must be (point, 2), got shape {array.shape}")
    return array


# --- the choice, on arrays -------------------------------------------------------------------


def within_slack(accuracy: Any, slack: float = 0.05, best: float | None = None) -> Mask:
    """Return where ``accuracy > best - slack``, strictly.

    Parameters
    ----------
    accuracy
        In double precision; where it is not finite, the result is False.
    slack
        Positive. A difference from `best` that equals it but for rounding (1e-9) is not within.
    best
        By default the largest finite accuracy.

    Examples
    --------
    >>> within_slack([0.75, 0.71, 0.70, float("nan")]).tolist()
    [True, True, False, False]
    """
    if not (0 < slack < math.inf):
        raise ValueError(
            f"slack must be positive and finite, got {slack!r}; a tiny one keeps only the best"
        )
    array = np.asarray(accuracy, dtype=np.float64)
    finite = np.isfinite(array)
    if best is None:
        best = float(np.max(array, where=finite, initial=-np.inf))
    elif not math.isfinite(best):
        raise ValueError(f"best must be finite, got {best!r}; leave it out for the largest")
    mask = np.zeros(array.shape, dtype=bool)
    # half the slack, so that the best itself is within however small the slack
    mask[finite] = slack - (best - array[finite]) > min(TOLERANCE, slack / 2)
    return mask


def balanced_score(pe: Any, ece: Any, pe_ce: float, ece_ce: float) -> Floats:
    """Return ``pe / pe_ce + ece / ece_ce``: both measures in units of plain cross-entropy.

    A row as good as the median of cross-entropy has the score 2; lower is better.

    Examples
    --------
    >>> balanced_score([0.2, 0.1], [0.05, 0.05], pe_ce=0.2, ece_ce=0.05).tolist()
    [2.0, 1.5]
    """
    for name, unit in (("PE", pe_ce), ("ECE", ece_ce)):
        if not (0 < unit < math.inf):
            raise ValueError(
                f"the median {name} of cross-entropy is {unit!r}, and the balanced score divides "
                "by it; choose with objective='pe' or 'ece', or give a function of the row"
            )
    scaled: Floats = np.asarray(pe, np.float64) / pe_ce + np.asarray(ece, np.float64) / ece_ce
    return scaled


def choose(
    accuracy: Any,
    pe: Any,
    ece: Any,
    *,
    slack: float = 0.05,
    objective: Objective = "balanced",
    baseline: Any = None,
    among: Any = None,
    best: float | None = None,
) -> int:
    """Return the position of the row that `select` would choose, from arrays.

    Parameters
    ----------
    accuracy, pe, ece
        (row,) each, all of the validation part.
    slack, best
        As in `within_slack`.
    objective
        "pe", "ece" or "balanced", as in `select`.
    baseline
        (row,) booleans: the rows of plain cross-entropy. Read by "balanced" only, which needs it.
    among
        (row,) booleans: the rows that may be chosen; by default all. Best accuracy and medians
        are still those of all rows.

    Examples
    --------
    >>> choose([0.8, 0.8, 0.7], [0.3, 0.2, 0.0], [0.01, 0.02, 0.0], objective="pe")
    1
    """
    _check_objective(objective)
    columns = [np.asarray(values, dtype=np.float64) for values in (accuracy, pe, ece)]
    marks = {"among": among, "baseline": baseline}
    masks = {name: np.asarray(m) for name, m in marks.items() if m is not None}
    shapes = {array.shape for array in (*columns, *masks.values())}
    if len(shapes) > 1 or columns[0].ndim != 1:
        raise ValueError(
            f"accuracy, pe, ece and the masks must all be (row,), got shapes {sorted(shapes)}"
        )
    for name, mask in masks.items():
        if mask.dtype != bool:
            raise TypeError(f"{name} must be booleans, one per row, got dtype {mask.dtype}")
    _, pes, eces = columns
    within = within_slack(columns[0], slack, best)
    usable = within & np.isfinite(pes) & np.isfinite(eces)
    if objective == "balanced":
        if "baseline" not in masks:
            raise ValueError(
                "objective 'balanced' needs baseline=, which marks the rows of cross-entropy"
            )
        ce = usable & masks["baseline"]
        if not ce.any():
            raise ValueError(
                f"no row of cross-entropy ({BASELINE!r}) with a finite PE and ECE is within "
                f"{slack} of the best accuracy, so the balanced score has no unit; add such runs, "
                "widen the slack, or choose with objective='pe' or 'ece'"
            )
        units = float(np.median(pes[ce])), float(np.median(eces[ce]))
        score = balanced_score(pes, eces, *units)
    else:
        score = pes if objective == "pe" else eces
    allowed = np.flatnonzero(usable & masks.get("among", True))
    if not len(allowed):
        raise ValueError(
            f"nothing to choose: no row with a finite PE and ECE is within {slack} of the best "
            "accuracy; widen the slack, or add runs"
        )
    return int(allowed[np.argmin(score[allowed])])


def _check_objective(objective: Any) -> None:
    if objective not in OBJECTIVES:
        raise ValueError(
            f"unknown objective {objective!r}; use one of {', '.join(OBJECTIVES)}, or with "
            "select a function that takes a row and returns a number"
        )


# --- the choice, on a table ------------------------------------------------------------------


def select(
    runs: Any,
    slack: float = 0.05,
    objective: Objective | Callable[[dict[str, Any]], float] = "balanced",
    *,
    calibration: Literal["", "common", "group"] = "",
    n_bins: int = 15,
    technique: str | None = None,
) -> dict[str, Any]:
    """Return the best row among those whose validation accuracy is within the slack.

    The named objectives read validation columns only: the test columns of the row returned are
    an honest estimate. The first of several equally good rows is returned.

    Parameters
    ----------
    runs
        A row per run and epoch: a pandas, polars or PyArrow table, or a mapping of names to
        columns. It has the columns ``technique`` and ``val_accuracy``, and with the calibration
        in their names ``val_pe`` and ``val_ece15`` (``val_group_pe``, ...).
    slack
        A row qualifies if its accuracy is above the best of all rows minus this; see
        `within_slack`.
    objective
        What is least in the row chosen: "pe", "ece", or "balanced", their sum in units of the
        medians of the qualifying rows of technique "ce"; see `balanced_score`. Rows whose PE or
        ECE is not finite are neither chosen nor in a median. Or a function that takes a row as a
        dictionary and returns a number, lower being better and nan meaning never; it sees only
        the rows that may be chosen.
    calibration
        The temperatures applied: none "", "common" or "group". No effect on a function.
    n_bins
        Bins of the ECE, as in the name of its column. No effect on a function.
    technique
        Choose among the rows of this technique only. Slack and medians stay those of all rows.

    Returns
    -------
    Column name to value, all columns of the table, as Python's own scalars.

    Examples
    --------
    >>> runs = {
    ...     "technique": ["ce", "ce", "mmce", "mmce"],
    ...     "val_accuracy": [0.80, 0.78, 0.79, 0.60],
    ...     "val_pe": [0.4, 0.6, 0.3, 0.0],
    ...     "val_ece15": [0.10, 0.10, 0.05, 0.0],
    ... }
    >>> select(runs)
    {'technique': 'mmce', 'val_accuracy': 0.79, 'val_pe': 0.3, 'val_ece15': 0.05}
    >>> select(runs, objective=lambda row: -row["val_accuracy"])["val_accuracy"]
    0.8
    """
    if not callable(objective):
        _check_objective(objective)
    if calibration not in CALIBRATIONS:
        raise ValueError(f"unknown calibration {calibration!r}; use '' (none), 'common' or 'group'")
    columns = _columns(runs)
    accuracy = _numbers(columns, "val_accuracy")
    within = within_slack(accuracy, slack)
    rows = np.flatnonzero(within)
    if not len(rows):
        raise ValueError(
            "nothing to choose: val_accuracy is not finite in any row; "
            "drop the runs that diverged, and check that the others were measured"
        )
    among = within
    if technique is not None:
        among = _of_technique(columns, technique, rows, len(within))
        if not among.any():
            raise ValueError(_none_of(columns, technique, slack, float(accuracy[rows].max())))
    if callable(objective):
        return _row(columns, _least(columns, np.flatnonzero(among), objective))
    prefix = f"val_{calibration}" if calibration else "val"
    chosen = choose(
        accuracy,
        _numbers(columns, f"{prefix}_pe"),
        _numbers(columns, f"{prefix}_ece{n_bins}"),
        slack=slack,
        objective=objective,
        baseline=(
            _of_technique(columns, BASELINE, rows, len(within)) if objective == "balanced" else None
        ),
        among=among,
    )
    return _row(columns, chosen)


def _columns(runs: Any) -> dict[str, Any]:
    """Return the columns by name: narwhals series, lists or arrays, all of one length."""
    columns: dict[str, Any]
    if isinstance(runs, Mapping):
        columns = {str(name): _column(values, name) for name, values in runs.items()}
    else:
        try:
            frame = nw.from_native(runs, eager_only=True)
        except TypeError:
            raise TypeError(
                "runs must be a pandas, polars or PyArrow table or a mapping of names to columns, "
                f"got {type(runs).__name__}; collect a lazy frame, and convert a DuckDB relation "
                "with to_arrow_table()"
            ) from None
        columns = {name: frame[name] for name in frame.columns}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns of runs differ in length: {lengths}")
    if not any(lengths.values()):
        raise ValueError("runs has no rows; pass at least one run, measured after one epoch")
    return columns


def _column(values: Any, name: Any) -> Any:
    if isinstance(values, list | tuple):
        # kept as it is: an array would change the type of mixed values
        return values
    values = nw.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(values, nw.Series):
        return values
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(
            f"column {name!r} of runs must have one axis, got shape {array.shape}; "
            "pass one value per run and epoch, for example with ravel()"
        )
    return array


def _find(columns: Mapping[str, Any], name: str) -> Any:
    if name not in columns:
        raise ValueError(f"runs has no column {name!r}; its columns are {', '.join(columns)}")
    return columns[name]


def _numbers(columns: Mapping[str, Any], name: str) -> Floats:
    return matrix(_find(columns, name), name).astype(np.float64)


def _take(values: Any, index: NDArray[np.intp]) -> list[Any]:
    """Return some values of a column as Python's own scalars."""
    if isinstance(values, nw.Series):
        taken = values[index.tolist()].to_list()
    elif isinstance(values, np.ndarray):
        taken = values[index].tolist()
    else:
        taken = [values[i] for i in index]
    return [v.item() if isinstance(v, np.generic) else v for v in taken]


def _rows(columns: Mapping[str, Any], index: NDArray[np.intp]) -> Iterator[dict[str, Any]]:
    for start in range(0, len(index), SLICE):
        part = [_take(values, index[start : start + SLICE]) for values in columns.values()]
        for row in zip(*part, strict=True):
            yield dict(zip(columns, row, strict=True))


def _row(columns: Mapping[str, Any], position: int) -> dict[str, Any]:
    return next(_rows(columns, np.array([position])))


def _of_technique(
    columns: Mapping[str, Any], technique: str, rows: NDArray[np.intp], n: int
) -> Mask:
    """Return which of the `n` rows are among `rows` and of this technique."""
    mask = np.zeros(n, dtype=bool)
    mask[rows] = [str(v) == technique for v in _take(_find(columns, "technique"), rows)]
    return mask


def _none_of(columns: Mapping[str, Any], technique: str, slack: float, best: float) -> str:
    everything = np.arange(len(columns["technique"]))
    known = sorted({str(v) for v in _take(columns["technique"], everything)})
    if technique not in known:
        return f"runs has no row of technique {technique!r}; its techniques are {', '.join(known)}"
    return (
        f"technique {technique!r} has no row within {slack} of the best validation accuracy, "
        f"{best:.4g}; widen the slack, or choose another technique"
    )


def _least(
    columns: Mapping[str, Any],
    index: NDArray[np.intp],
    objective: Callable[[dict[str, Any]], float],
) -> int:
    """Return the position at which the caller's function is least."""
    score = np.empty(len(index))
    for i, row in enumerate(_rows(columns, index)):
        value = objective(row)
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(
                f"the objective returned {value!r} ({type(value).__name__}) for row {index[i]}; "
                "it must return a number, lower being better"
            )
        score[i] = value
    index, score = index[~np.isnan(score)], score[~np.isnan(score)]
    if not len(index):
        raise ValueError("nothing to choose: the objective is nan for every row that it was given")
    return int(index[np.argmin(score)])
