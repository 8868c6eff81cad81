"""Real datasets with a label and a sensitive group.

`load` gives German credit and COMPAS, which the package carries; no network is needed.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, repr=False)
class Dataset:
    """Features, labels and groups of one dataset.

    Attributes
    ----------
    X
        (row, feature) float32, raw.
    feature_names
        Name of each column of `X`.
    y, group
        (row,) integers, 0 or 1.
    class_names, group_names
        What the values of `y` and `group` stand for.
    title, source, licence
        Where the data comes from.
    """

    X: NDArray[np.float32]
    feature_names: tuple[str, ...]
    y: NDArray[np.int64]
    group: NDArray[np.int64]
    class_names: tuple[str, ...]
    group_names: tuple[str, ...]
    title: str
    source: str
    licence: str

    def __repr__(self) -> str:
        rows, columns = self.X.shape
        return f"Dataset({self.title}: {rows:,} rows, {columns} features)"


def load(name: str) -> Dataset:
    """Return a dataset: "german" (group: age of 25 or more) or "compas" (group: race).

    >>> load("german")
    Dataset(German credit: 1,000 rows, 60 features)
    """
    if name not in _LOADERS:
        raise ValueError(f"unknown dataset {name!r}; there are {', '.join(sorted(_LOADERS))}")
    return _LOADERS[name]()


def _carried(name: str) -> list[str]:
    content = resources.files("equipoise").joinpath("data", name).read_bytes()
    return gzip.decompress(content).decode().splitlines()


def _one_hot(name: str, values: Iterable[str]) -> tuple[list[str], NDArray[np.float32]]:
    column = np.array(list(values))
    found = np.unique(column)
    return [f"{name}={v}" for v in found], (column[:, None] == found).astype(np.float32)


def _german() -> Dataset:
    rows = [line.split() for line in _carried("german.data.gz")]
    columns = dict(zip(_GERMAN, zip(*rows, strict=True), strict=True))
    age = np.array(columns.pop("age"), np.int64)
    credit = np.array(columns.pop("credit"), np.int64)
    names: list[str] = []
    blocks: list[NDArray[Any]] = []
    for name, values in columns.items():
        if values[0].startswith("A"):
            found, block = _one_hot(name, values)
        else:
            found, block = [name], np.array(values, np.float32)[:, None]
        names += found
        blocks.append(block)
    return Dataset(
        X=np.concatenate(blocks, axis=1),
        feature_names=tuple(names),
        y=(credit == 1).astype(np.int64),
        group=(age >= 25).astype(np.int64),
        class_names=("bad credit", "good credit"),
        group_names=("under 25", "25 or older"),
        title="German credit",
        source="H. Hofmann, Statlog (German Credit Data), UCI, doi.org/10.24432/C5NC77",
        licence="CC BY 4.0",
    )


_GERMAN = (
    "status",
    "months",
    "history",
    "purpose",
    "amount",
    "savings",
    "employment",
    "instalment_rate",
    "personal_status",
    "debtors",
    "residence_years",
    "property",
    "age",
    "other_plans",
    "housing",
    "credits",
    "job",
    "dependants",
    "telephone",
    "foreign_worker",
    "credit",
)


def _compas() -> Dataset:
    # the filter of ProPublica's own analysis, and the two largest groups
    rows = [
        row
        for row in csv.DictReader(_carried("compas.csv.gz"))
        if row["days_b_screening_arrest"]
        and abs(int(row["days_b_screening_arrest"])) <= 30
        and row["is_recid"] != "-1"
        and row["c_charge_degree"] != "O"
        and row["score_text"] not in ("", "N/A")
        and row["race"] in ("African-American", "Caucasian")
    ]
    priors = (int(row["priors_count"]) for row in rows)
    parts = [
        (["sex=Male"], np.array([[row["sex"] == "Male"] for row in rows], np.float32)),
        (
            ["race=African-American"],
            np.array([[row["race"] == "African-American"] for row in rows], np.float32),
        ),
        _one_hot("age", (row["age_cat"] for row in rows)),
        _one_hot("priors", ("0" if p == 0 else "1-3" if p <= 3 else ">3" for p in priors)),
        _one_hot("charge", (row["c_charge_degree"] for row in rows)),
    ]
    return Dataset(
        X=np.concatenate([block for _, block in parts], axis=1),
        feature_names=tuple(name for names, _ in parts for name in names),
        y=np.array([row["two_year_recid"] == "0" for row in rows], np.int64),
        group=np.array([row["race"] == "African-American" for row in rows], np.int64),
        class_names=("recidivism within two years", "no recidivism"),
        group_names=("Caucasian", "African-American"),
        title="COMPAS",
        source="ProPublica, github.com/propublica/compas-analysis",
        licence="published for public use",
    )


_LOADERS: dict[str, Callable[[], Dataset]] = {"compas": _compas, "german": _german}
