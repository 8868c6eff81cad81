"""The choice of one row of a table of runs, on validation."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import matrix, named_columns
from equipoise.search._choice import BASELINE, Objective, check_objective, choose, within_slack
from equipoise.training import CALIBRATIONS, run_column

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SLICE = 1 << 12
"""Rows turned into dictionaries at a time."""


def select(
    runs: Any,
    slack: float = 0.05,
    objective: Objective | Callable[[dict[str, Any]], float] = "balanced",
    *,
    calibration: Literal["common", "group"] | None = None,
    n_bins: int = 15,
    loss: str | None = None,
) -> dict[str, Any]:
    """Return the best row among those whose validation accuracy is within the slack.

    The named objectives read validation columns only: the test columns of the row returned are
    an honest estimate. The first of several equally good rows is returned.

    Parameters
    ----------
    runs
        A row per run and epoch: a pandas, polars or PyArrow table, or a mapping of names to
        columns. It has the columns ``loss`` and ``val_accuracy``, and with the calibration
        in their names ``val_pe`` and ``val_ece15`` (``val_group_pe``, ...).
    slack
        A row qualifies if its accuracy is above the best of all rows minus this; see
        `within_slack`.
    objective
        Objective to minimise: "pe", "ece", or "balanced", their sum in units of the medians of the
        qualifying rows of loss "ce" (see `balanced_score`). Rows whose PE or ECE is not finite are
        ignored. Or a function of a row, as a dictionary, that returns a number: lower is better,
        and nan excludes the row. It gets only rows that may be chosen.
    calibration
        The temperatures applied: None, "common" or "group". No effect on a function.
    n_bins
        Bins of the ECE, as in the name of its column. No effect on a function.
    loss
        Choose among the rows of this loss only. Slack and medians stay those of all rows.

    Returns
    -------
    Column name to value, all columns of the table, as Python's own scalars.

    Examples
    --------
    >>> runs = {
    ...     "loss": ["ce", "ce", "mmce", "mmce"],
    ...     "val_accuracy": [0.80, 0.78, 0.79, 0.60],
    ...     "val_pe": [0.4, 0.6, 0.3, 0.0],
    ...     "val_ece15": [0.10, 0.10, 0.05, 0.0],
    ... }
    >>> select(runs)
    {'loss': 'mmce', 'val_accuracy': 0.79, 'val_pe': 0.3, 'val_ece15': 0.05}
    >>> select(runs, objective=lambda row: -row["val_accuracy"])["val_accuracy"]
    0.8
    """
    if not callable(objective):
        check_objective(objective)
    if calibration not in CALIBRATIONS:
        raise ValueError(f"unknown calibration {calibration!r}; use None, 'common' or 'group'")
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
    if loss is not None:
        among = _of_loss(columns, loss, rows, len(within))
        if not among.any():
            raise ValueError(_none_of(columns, loss, slack, float(accuracy[rows].max())))
    if callable(objective):
        return _row(columns, _least(columns, np.flatnonzero(among), objective))
    chosen = choose(
        accuracy,
        _numbers(columns, run_column("val", "pe", calibration)),
        _numbers(columns, run_column("val", f"ece{n_bins}", calibration)),
        slack=slack,
        objective=objective,
        baseline=(
            _of_loss(columns, BASELINE, rows, len(within)) if objective == "balanced" else None
        ),
        among=among,
    )
    return _row(columns, chosen)


def _columns(runs: Any) -> dict[str, Any]:
    """Return the columns by name: narwhals series, lists or arrays, all of one length."""
    named = named_columns(runs)
    if named is None:
        raise TypeError(
            "runs must be a pandas, polars or PyArrow table or a mapping of names to columns, "
            f"got {type(runs).__name__}; collect a lazy frame, and convert a DuckDB relation "
            "with to_arrow_table()"
        )
    columns = {str(name): _column(values, name) for name, values in named.items()}
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


def _of_loss(columns: Mapping[str, Any], loss: str, rows: NDArray[np.intp], n: int) -> Mask:
    """Return which of the `n` rows are among `rows` and of this loss."""
    mask = np.zeros(n, dtype=bool)
    mask[rows] = [str(v) == loss for v in _take(_find(columns, "loss"), rows)]
    return mask


def _none_of(columns: Mapping[str, Any], loss: str, slack: float, best: float) -> str:
    everything = np.arange(len(columns["loss"]))
    known = sorted({str(v) for v in _take(columns["loss"], everything)})
    if loss not in known:
        return f"runs has no row of loss {loss!r}; its losses are {', '.join(known)}"
    return (
        f"loss {loss!r} has no row within {slack} of the best validation accuracy, "
        f"{best:.4g}; widen the slack, or choose another loss"
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
