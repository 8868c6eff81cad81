"""How the published files become features, labels and groups.

Each recipe reproduces the sizes and rates of the paper's Table 2; the tests compare them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = tuple[str, ...]
Block = tuple[list[str], NDArray[np.float32]]


class Arrays(NamedTuple):
    """What a recipe gives: X by feature, and label and group as truth values."""

    blocks: list[Block]
    y: NDArray[np.bool_]
    group: NDArray[np.bool_]


def _table(lines: Iterable[str], names: Sequence[str] | None = None) -> dict[str, Column]:
    """Read comma-separated lines as columns of text; without `names` the first line has them."""
    rows = [row for row in csv.reader(lines, skipinitialspace=True) if row]
    header = names or rows.pop(0)
    return dict(zip(header, zip(*rows, strict=True), strict=True))


def _is(values: Iterable[str], *wanted: str) -> NDArray[np.bool_]:
    return np.array([v in wanted for v in values])


def _floats(values: Iterable[str]) -> NDArray[np.float64]:
    return np.array([np.nan if v == "?" else float(v) for v in values])


def _one_hot(name: str, values: Sequence[str]) -> Block:
    found = sorted(set(values))
    place = {v: j for j, v in enumerate(found)}
    codes = [place[v] for v in values]
    return [f"{name}={v}" for v in found], np.eye(len(found), dtype=np.float32)[codes]


def _single(name: str, values: NDArray[Any]) -> Block:
    return [name], values.astype(np.float32)[:, None]


def _blocks(
    columns: Mapping[str, Column], left_out: Collection[str], categorical: Collection[str] = ()
) -> list[Block]:
    return [
        _one_hot(name, values) if name in categorical else _single(name, _floats(values))
        for name, values in columns.items()
        if name not in left_out
    ]


# --- Adult -----------------------------------------------------------------------------------

_ADULT = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)  # fmt: skip
_ADULT_CATEGORICAL = (
    "workclass", "education", "marital-status", "occupation", "relationship", "race",
    "native-country",
)  # fmt: skip


def _adult(lines: list[str], _group: str) -> Arrays:
    # the sample has a header with a misspelt name and income as 0 or 1; the original has neither,
    # but a first line of its own in adult.test, and a full stop after the income there
    columns = _table((line for line in lines if line[:1].isdigit()), _ADULT)
    return Arrays(
        _blocks(columns, ("sex", "income"), _ADULT_CATEGORICAL),
        y=_is(columns["income"], "1", ">50K", ">50K."),
        group=_is(columns["sex"], "Male"),
    )


# --- Arrhythmia ------------------------------------------------------------------------------

_LEADS = ("DI", "DII", "DIII", "AVR", "AVL", "AVF", "V1", "V2", "V3", "V4", "V5", "V6")
_ARRHYTHMIA = (
    "age", "sex", "height", "weight", "QRS duration", "P-R interval", "Q-T interval", "T interval",
    "P interval", "QRS angle", "T angle", "P angle", "QRST angle", "J angle", "heart rate",
    *(
        f"{lead} {what}"
        for lead in _LEADS
        for what in (
            "Q width", "R width", "S width", "R' width", "S' width", "deflections", "ragged R",
            "diphasic R", "ragged P", "diphasic P", "ragged T", "diphasic T",
        )
    ),
    *(
        f"{lead} {what}"
        for lead in _LEADS
        for what in (
            "JJ amplitude", "Q amplitude", "R amplitude", "S amplitude", "R' amplitude",
            "S' amplitude", "P amplitude", "T amplitude", "QRSA", "QRSTA",
        )
    ),
    "class",
)  # fmt: skip


def _arrhythmia(lines: list[str], _group: str) -> Arrays:
    columns = _table(lines, _ARRHYTHMIA)
    return Arrays(
        _blocks(columns, ("sex", "class")),
        y=_is(columns["class"], "1"),
        group=_is(columns["sex"], "1"),
    )


# --- Communities, Drug, Law school -----------------------------------------------------------


def _communities(lines: list[str], _group: str) -> Arrays:
    columns = _table(lines)
    # in whole percents: eight communities are exact ties, which a sum of floats may lose
    white, *others = (
        np.rint(100 * _floats(columns[name]))
        for name in ("racePctWhite", "racepctblack", "racePctAsian", "racePctHisp")
    )
    return Arrays(
        # the first column, without a name, is the row number
        _blocks(columns, ("", "ViolentCrimesPerPop")),
        y=_floats(columns["ViolentCrimesPerPop"]) == 0,
        group=white >= sum(others),
    )


_DRUG = (
    "id", "age", "gender", "education", "country", "ethnicity", "neuroticism", "extraversion",
    "openness", "agreeableness", "conscientiousness", "impulsiveness", "sensation seeking",
)  # fmt: skip
_DRUGS = (
    "alcohol", "amphetamines", "amyl nitrite", "benzodiazepines", "caffeine", "cannabis",
    "chocolate", "cocaine", "crack", "ecstasy", "heroin", "ketamine", "legal highs", "LSD",
    "methadone", "mushrooms", "nicotine", "semeron", "volatile substances",
)  # fmt: skip


def _drug(lines: list[str], _group: str) -> Arrays:
    columns = _table(lines, (*_DRUG, *_DRUGS))
    return Arrays(
        _blocks(columns, ("id", *_DRUGS)),
        y=_is(columns["ketamine"], "CL0"),
        group=_is(columns["ethnicity"], "-0.31685"),
    )


def _lawschool(lines: list[str], _group: str) -> Arrays:
    columns = _table(lines)
    return Arrays(
        _blocks(columns, ("bar1",)), y=_is(columns["bar1"], "1"), group=_is(columns["gender"], "0")
    )


# --- COMPAS ----------------------------------------------------------------------------------


def _compas(lines: list[str], _group: str) -> Arrays:
    # the filter of ProPublica's own analysis, and the two largest groups
    rows = [
        row
        for row in csv.DictReader(lines)
        if row["days_b_screening_arrest"]
        and abs(int(row["days_b_screening_arrest"])) <= 30
        and row["is_recid"] != "-1"
        and row["c_charge_degree"] != "O"
        and row["score_text"] not in ("", "N/A")
        and row["race"] in ("African-American", "Caucasian")
    ]
    priors = (int(row["priors_count"]) for row in rows)
    black = _is((row["race"] for row in rows), "African-American")
    return Arrays(
        [
            _single("sex=Male", _is((row["sex"] for row in rows), "Male")),
            _single("race=African-American", black),
            _one_hot("age", [row["age_cat"] for row in rows]),
            _one_hot("priors", ["0" if p == 0 else "1-3" if p <= 3 else ">3" for p in priors]),
            _one_hot("charge", [row["c_charge_degree"] for row in rows]),
        ],
        y=_is((row["two_year_recid"] for row in rows), "0"),
        group=black,
    )


# --- German credit ---------------------------------------------------------------------------

_GERMAN = (
    "status", "months", "history", "purpose", "amount", "savings", "employment",
    "instalment_rate", "personal_status", "debtors", "residence_years", "property", "age",
    "other_plans", "housing", "credits", "job", "dependants", "telephone", "foreign_worker",
    "credit",
)  # fmt: skip


def _german(lines: list[str], group: str) -> Arrays:
    columns = _table((",".join(line.split()) for line in lines), _GERMAN)
    categorical = [name for name, values in columns.items() if values[0].startswith("A")]
    groups = {
        "age": _floats(columns["age"]) >= 25,
        # A92 and A95 are the women among the personal statuses
        "gender": ~_is(columns["personal_status"], "A92", "A95"),
    }
    left_out = "age" if group == "age" else "personal_status"
    return Arrays(
        _blocks(columns, (left_out, "credit"), categorical),
        y=_is(columns["credit"], "1"),
        group=groups[group],
    )


RECIPES: dict[str, Callable[[list[str], str], Arrays]] = {
    "adult": _adult,
    "adult-full": _adult,
    "arrhythmia": _arrhythmia,
    "communities": _communities,
    "compas": _compas,
    "drug": _drug,
    "german": _german,
    "lawschool": _lawschool,
}
"""Recipe of each dataset: (lines of its files, name of the group) -> Arrays."""
