"""How the published files become features, labels and groups.

Each recipe of a dataset of the paper reproduces the sizes and rates of its Table 2; the tests
compare them.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = tuple[str, ...]
Block = tuple[list[str], NDArray[np.float32]]


class Arrays(NamedTuple):
    """What a recipe gives: X by feature, the label as truth values, and the group.

    The group is truth values too, or positions in the group's names.
    """

    blocks: list[Block]
    y: NDArray[np.bool_]
    group: NDArray[Any]


def _table(lines: Iterable[str], names: Sequence[str] | None = None) -> dict[str, Column]:
    """Read comma-separated lines as columns of text; without `names` the first line has them."""
    # equal texts are kept once: a large file would need gigabytes
    rows = [
        [sys.intern(text) for text in row]
        for row in csv.reader(lines, skipinitialspace=True)
        if row
    ]
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


# --- larger data, inside published packages --------------------------------------------------

_CENSUS = (
    "age", "class_of_worker", "industry_code", "occupation_code", "education", "wage_per_hour",
    "enrolled", "marital_status", "industry", "occupation", "race", "hispanic_origin", "sex",
    "union_member", "unemployment_reason", "employment", "capital_gains", "capital_losses",
    "dividends", "tax_filer", "previous_region", "previous_state", "family_status", "household",
    "weight", "moved_msa", "moved_region", "moved_within_region", "same_house", "from_sunbelt",
    "employer_size", "parents_present", "father_born", "mother_born", "born", "citizenship",
    "self_employed", "veterans_form", "veterans_benefits", "weeks_worked", "year", "income",
)  # fmt: skip
_CENSUS_NUMBERS = (
    "age", "wage_per_hour", "capital_gains", "capital_losses", "dividends", "employer_size",
    "weeks_worked", "year",
)  # fmt: skip
_CENSUS_RACES = (
    "White", "Black", "Asian or Pacific Islander", "Amer Indian Aleut or Eskimo", "Other",
)  # fmt: skip


def _gathered(values: Column, share: float = 0.01) -> Column:
    """Replace values that fewer than this share of the rows have by one common value."""
    counts = Counter(values)
    return tuple(v if counts[v] >= share * len(values) else "(rare)" for v in values)


def _census(lines: list[str], group: str) -> Arrays:
    """Use all persons; leave out the group, the survey weight and the two detailed codes.

    The detailed codes of industry and occupation refine `industry` and `occupation`, which stay.
    """
    columns = _table(lines, _CENSUS)
    left_out = (group, "weight", "industry_code", "occupation_code", "income")
    categorical = [name for name in _CENSUS if name not in _CENSUS_NUMBERS]
    # "not in universe" and "?" are values like others
    features = {
        name: _gathered(values) if name in categorical else values
        for name, values in columns.items()
        if name not in left_out
    }
    return Arrays(
        _blocks(features, (), categorical),
        y=_is(columns["income"], "50000+."),
        group=_is(columns["sex"], "Male")
        if group == "sex"
        else np.array([_CENSUS_RACES.index(race) for race in columns["race"]]),
    )


def _acs(lines: list[str], group: str) -> Arrays:
    """Use all persons and years; leave out the row number and the predictions of a model.

    The labels of the years after 2015 are in a file of their own, in the same order of rows. All
    but age and year are codes of the survey, one column for each.
    """
    # each of the three files has a header; PyArrow may quote it
    starts = [i for i, line in enumerate(lines) if line.startswith(("id,", '"id",'))]
    first, later, labels = (
        _table(lines[a:b]) for a, b in zip(starts, [*starts[1:], None], strict=True)
    )
    if later["id"] != labels["id"]:
        raise ValueError("the labels of acs-massachusetts are not those of its rows")
    columns = {name: values + (later | labels)[name] for name, values in first.items()}
    own = {"sex": ("SEX",), "race": ("RAC1P",), "disability": ("DIS", "DEAR", "DEYE", "DREM")}
    left_out = {"id", "prediction", "predicted_probability", "employed", *own[group]}
    codes = _floats(columns[own[group][0]]).astype(np.int64)
    return Arrays(
        _blocks(columns, left_out, set(columns) - {"AGEP", "year"}),
        y=_is(columns["employed"], "1"),
        # of sex 1 is male and 2 female, of disability 1 is with and 2 without; races are 1 to 9
        group=codes - 1 if group == "race" else codes == 1,
    )


def _mortgages(lines: list[str], _group: str) -> Arrays:
    """Predict home ownership from state and quarter of birth and from service in two wars."""
    columns = _table(lines)
    return Arrays(
        _blocks(columns, ("nonwhite", "home_ownership"), ("bpl", "qob")),
        y=_is(columns["home_ownership"], "1"),
        group=_is(columns["nonwhite"], "1"),
    )


RECIPES: dict[str, Callable[[list[str], str], Arrays]] = {
    "acs-massachusetts": _acs,
    "adult": _adult,
    "adult-full": _adult,
    "arrhythmia": _arrhythmia,
    "census-income": _census,
    "communities": _communities,
    "compas": _compas,
    "drug": _drug,
    "german": _german,
    "lawschool": _lawschool,
    "mortgages": _mortgages,
}
"""Recipe of each dataset: (lines of its files, name of the group) -> Arrays."""
