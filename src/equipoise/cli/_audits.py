"""The audits behind `equipoise audit`: tables of several models and parts."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise._inputs import shown, text_of
from equipoise.auditing import (
    AuditReport,
    Columns,
    Gate,
    Outcome,
    fill,
    find_group,
    rates_of,
    report_of,
    split_names,
    without_reference,
)
from equipoise.metrics import AuditTable, GroupRates

if TYPE_CHECKING:
    from equipoise.auditing import OnInterval

MOST_MODELS = 20
"""Files that are taken for one model each; more are probably the parts of one."""

Key = tuple[Any, ...]
Tables = dict[Key, AuditTable]


@dataclasses.dataclass
class Audits:
    """Tables by model and by the values of the columns `by`; a model without a name is None.

    `columns` are those that were read: "label", "prob" and so on; `unnamed` counts rows that were
    left out and belong to none of the models.
    """

    tables: dict[str | None, Tables]
    by: tuple[str, ...]
    dropped: dict[str | None, int]
    columns: Mapping[str, Any]
    rates: GroupRates | None = None
    unnamed: int = 0


# --- from predictions ------------------------------------------------------------------------


def read(
    sources: Sequence[str],
    columns: Columns,
    *,
    model: str | None,
    labels: Sequence[str] | None,
    n_bins: int,
    drop_missing: bool,
    engine: Any,
) -> Audits:
    """Sum up predictions: each source is a model, or one source has a column with their names."""
    about = {
        "label": columns.label,
        "prob": list(columns.prob),
        "group": list(columns.group),
        "pred": columns.pred,
    }
    found = Audits({}, columns.by, {}, about)
    if model is not None:
        columns = dataclasses.replace(columns, by=(model, *columns.by))
    for name, source in _named(sources).items():
        filled = fill(
            source,
            columns,
            labels=labels,
            n_bins=n_bins,
            drop_missing=drop_missing,
            engine=engine,
        )
        for key, table in filled.tables.items():
            own, rest = (name, key) if model is None else (str(key[0]), key[1:])
            found.tables.setdefault(own, {})[rest] = table
            found.dropped[own] = filled.dropped
        if model is not None:
            for own in found.dropped:
                lost = filled.dropped_by.items()
                found.dropped[own] = sum(n for key, n in lost if str(key[0]) == own)
            found.unnamed = filled.dropped - sum(found.dropped.values())
    return found


def _named(sources: Sequence[str]) -> dict[str | None, str]:
    """Name models by their files: by the stem, or by the whole path where stems are the same."""
    if len(sources) == 1:
        return {None: sources[0]}
    if len(sources) > MOST_MODELS:
        raise ValueError(
            f"{len(sources)} files are {len(sources)} models, more than {MOST_MODELS}; if they "
            "are parts of one model's predictions, name their folder or put the pattern in quotes"
        )
    stems = [Path(s).stem for s in sources]
    names = [stem if stems.count(stem) == 1 else s for s, stem in zip(sources, stems, strict=True)]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"{twice} is given twice; each file is a model of its own")
    return dict(zip(names, sources, strict=True))


def training_rates(audits: Audits, source: str, label: str, engine: Any) -> GroupRates:
    """Return the rates of training labels."""
    labels = next(iter(next(iter(audits.tables.values())).values())).labels
    return rates_of(source, label, tuple(audits.columns["group"]), labels=labels, engine=engine)


# --- reports ---------------------------------------------------------------------------------


def reports(
    audits: Audits, *, reference: str | None, level: float, tolerance: float
) -> dict[str | None, AuditReport]:
    """Return a report of each model, with those of its parts."""
    found = {}
    for model, tables in audits.tables.items():
        whole = _added(tables.values())
        chosen = _reference(reference, whole)

        def report(table: AuditTable, chosen: Any = chosen, dropped: int = 0) -> AuditReport:
            lacks = chosen != "all" and chosen not in table.groups
            made = report_of(
                table,
                base_rates=_rates_for(table, audits.rates),
                reference_group=None if lacks else chosen,
                intervals="cells",
                level=level,
                tolerance=tolerance,
                dropped=dropped,
            )
            return without_reference(made, chosen) if lacks else made

        total = report(whole, dropped=audits.dropped[model])
        with warnings.catch_warnings():
            # the whole was warned of; a part shows what is undefined
            warnings.simplefilter("ignore")
            parts = {key: report(t) for key, t in tables.items()} if audits.by else {}
        found[model] = dataclasses.replace(total, by=parts)
    return found


def _added(tables: Any) -> AuditTable:
    first, *more = tables
    for table in more:
        first = first + table
    return first  # type: ignore[no-any-return]


def _reference(reference: str | None, whole: AuditTable) -> Hashable:
    # the first group of a part may be another than the first of all
    if reference is None:
        return whole.groups[0]
    names = [str(g) for g in whole.groups]
    if reference == "all" and "all" not in names:
        return "all"
    try:
        return find_group(split_names(reference), whole.groups)
    except ValueError as error:
        raise ValueError(f"--reference: {error}") from None


def _rates_for(table: AuditTable, rates: GroupRates | None) -> GroupRates | None:
    """Return the rates of a table's groups and labels, which are matched by their text."""
    if rates is None:
        return None
    by_text = {_texts(g): {_texts(k): v for k, v in own.items()} for g, own in rates.rates.items()}
    found: dict[Hashable, dict[Hashable, float]] = {}
    for group in table.groups:
        own = by_text.get(_texts(group))
        if own is None:
            known = "; ".join(shown(g) for g in list(rates.rates)[:20])
            raise ValueError(
                f"the training labels have no rows of group {shown(group)!r}, so its rate there "
                f"is unknown; their groups are {known}"
            )
        found[group] = {k: own.get(_texts(k), 0.0) for k in table.labels}
    return GroupRates(found)


def _texts(value: Any) -> tuple[str | None, ...]:
    return tuple(map(text_of, value)) if isinstance(value, tuple) else (text_of(value),)


def check(
    gates: Sequence[Gate], found: Mapping[str | None, AuditReport], on_interval: OnInterval | None
) -> list[tuple[Gate, str | None, Outcome]]:
    """Check gates on every model."""
    outcomes = []
    for gate in gates:
        for model, report in found.items():
            try:
                outcomes += [(gate, model, o) for o in gate.check(report, on_interval)]
            except ValueError as error:
                of = "" if model is None else f" of {model}"
                raise ValueError(f"--fail-if {gate.text!r}{of}: {error}") from None
    return outcomes
