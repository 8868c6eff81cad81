"""Audits as files: written by `equipoise audit --json`, added up by `--merge`."""

from __future__ import annotations

import dataclasses
import glob
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from equipoise._files import replace_file
from equipoise._inputs import from_plain, text_of, to_plain
from equipoise.auditing import AuditReport, Gate, Outcome
from equipoise.cli._audits import Audits, Key, Tables
from equipoise.metrics import AuditTable, GroupRates

FORMAT = "equipoise.Audit/1"
TABLE_FORMAT = "equipoise.AuditTable/1"


def save(
    path: Path,
    audits: Audits,
    found: Mapping[str | None, AuditReport],
    outcomes: Sequence[tuple[Gate, str | None, Outcome]],
) -> None:
    """Write all figures and the tables behind them as JSON, whole or not at all."""
    rates = audits.rates
    content = {
        "format": FORMAT,
        "columns": {**audits.columns, "by": list(audits.by)},
        "base_rates": None
        if rates is None
        else [
            {"group": to_plain(g), "rates": [[to_plain(k), v] for k, v in own.items()]}
            for g, own in rates.rates.items()
        ],
        "models": [{"model": model, **report.to_dict()} for model, report in found.items()],
        "gates": [
            {
                "gate": gate.text,
                "model": model,
                "where": outcome.where,
                "holds": outcome.holds,
                "text": outcome.text,
            }
            for gate, model, outcome in outcomes
        ],
    }
    # in ASCII: a name may hold half a character, which UTF-8 cannot
    text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=True)
    replace_file(path, (text + "\n").encode())


def merged(sources: Sequence[str], *, keep_rates: bool) -> Audits:
    """Add up what `save` wrote, or tables of `AuditTable.to_dict`, of the same model and part."""
    loaded: dict[Path, Audits] = {}
    for path in _json_files(sources):
        try:
            loaded[path] = _load(path)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path}: {said}") from None
    first, *more = loaded
    for path in more:
        _check_alike(path, loaded[first], loaded[path], keep_rates=keep_rates)
    _make_alike(list(loaded.values()))
    total = loaded[first]
    for path in more:
        for model, tables in loaded[path].tables.items():
            into = total.tables.setdefault(model, {})
            for key, table in tables.items():
                try:
                    into[key] = into[key] + table if key in into else table
                except ValueError as error:
                    raise ValueError(f"{path}: {error}") from None
            dropped = total.dropped.get(model, 0) + loaded[path].dropped[model]
            total.dropped[model] = dropped
    for model, tables in total.tables.items():
        total.tables[model] = {key: tables[key] for key in sorted(tables)}
    return total


def _check_alike(path: Path, first: Audits, own: Audits, *, keep_rates: bool) -> None:
    """Refuse files that cannot be added."""

    def named(names: Sequence[str]) -> str:
        return ", ".join(names) or "nothing"

    if first.by != own.by:
        raise ValueError(f"{path}: is split by {named(own.by)}, others by {named(first.by)}")
    # tables of AuditTable.to_dict do not name their columns
    for what in first.columns.keys() & own.columns.keys():
        mine, theirs = (_listed(a.columns[what]) for a in (own, first))
        if mine != theirs:
            raise ValueError(
                f"{path}: --{what} is {named(mine)}, in others {named(theirs)}; tables are added "
                "where they are of the same columns"
            )
    if keep_rates and first.rates != own.rates:
        raise ValueError(
            f"{path}: has other rates of training labels than others; make all with the same "
            "--train, or pass it here"
        )
    for model, tables in own.tables.items():
        others = next(iter(first.tables.get(model, tables).values()))
        table = next(iter(tables.values()))
        for what, option in (("labels", "--classes"), ("n_bins", "--bins")):
            here, there = getattr(table, what), getattr(others, what)
            if here != there:
                raise ValueError(
                    f"{path}: has {what} {here!r}, others {there!r}; make all with the same "
                    f"{option}"
                )


def _listed(names: str | Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _make_alike(audits: Sequence[Audits]) -> None:
    """Turn groups and parts to text where a column is of numbers in one file and not in another."""
    tables = [own for a in audits for own in a.tables.values()]
    groups = [g for own in tables for t in own.values() for g in t.groups]
    mixed = _mixed([g if isinstance(g, tuple) else (g,) for g in groups])
    mixed_by = _mixed([key for own in tables for key in own])
    if not any(mixed) and not any(mixed_by):
        return
    for a in audits:
        for model, own in a.tables.items():
            a.tables[model] = {
                _as_text(key, mixed_by): _with_text(table, mixed) for key, table in own.items()
            }


def _mixed(keys: Sequence[Key]) -> list[bool]:
    """Return for each position whether it has text as well as other values."""
    return [
        len({isinstance(v, str) for v in values}) > 1
        for values in zip(*dict.fromkeys(keys), strict=True)
    ]


def _as_text(key: Key, mixed: Sequence[bool]) -> Key:
    return tuple(str(text_of(v)) if m else v for v, m in zip(key, mixed, strict=True))


def _with_text(table: AuditTable, mixed: Sequence[bool]) -> AuditTable:
    own = [
        _as_text(g, mixed) if isinstance(g, tuple) else _as_text((g,), mixed)[0]
        for g in table.groups
    ]
    order = sorted(range(len(own)), key=own.__getitem__)
    sums = {name: array[order] for name, array in table.sums.items()}
    return dataclasses.replace(table, groups=tuple(own[i] for i in order), sums=sums)


def _json_files(sources: Sequence[str]) -> list[Path]:
    paths: list[Path] = []
    for source in sources:
        path = Path(source)
        if path.is_dir():
            found = sorted(path.glob("*.json"))
        elif path.exists():
            found = [path]
        else:
            found = [Path(p) for p in sorted(glob.glob(source, recursive=True))]  # noqa: PTH207 - of any folder
        if not found:
            raise FileNotFoundError(f"there is no file {source}; --merge adds files of --json")
        paths += found
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise ValueError(f"{path} is given twice, so its rows would count twice")
        seen.add(path.resolve())
    return paths


def _load(path: Path) -> Audits:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from None
    form = data.get("format") if isinstance(data, dict) else None
    if form == TABLE_FORMAT:
        return Audits({None: {(): AuditTable.from_dict(data)}}, (), {None: 0}, {})
    if form != FORMAT:
        raise ValueError("is not what `equipoise audit --json` or AuditTable.to_dict writes")
    columns = dict(data["columns"])
    by = tuple(columns.pop("by"))
    tables: dict[str | None, Tables] = {}
    dropped: dict[str | None, int] = {}
    for own in data["models"]:
        if not isinstance(own, dict):
            raise ValueError("is damaged: a model is not a table of figures")
        parts = [(p["key"], p["report"]) for p in own["by"]] if by else [([], own)]
        tables[own["model"]] = {
            from_plain(key): AuditTable.from_dict(part["table"]) for key, part in parts
        }
        dropped[own["model"]] = int(own["dropped"])
    if not tables or not all(tables.values()):
        raise ValueError("holds no tables")
    rates = None
    if data["base_rates"] is not None:
        rates = GroupRates(
            {
                from_plain(r["group"]): {from_plain(k): float(v) for k, v in r["rates"]}
                for r in data["base_rates"]
            }
        )
    return Audits(tables, by, dropped, columns, rates)
