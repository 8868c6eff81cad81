"""Adding up audits that were saved as JSON."""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from equipoise._files import check_path, pattern_of, read_json, restoring, unsealed
from equipoise._inputs import MOST_GROUPS, InputError, shown, text_of, too_many_groups
from equipoise.auditing._model_tables import Key, ModelTables
from equipoise.metrics import TABLE_FORMAT, AuditTable

FORMAT = "equipoise.Audit/2"
EARLIER = ("equipoise.Audit/1", "equipoise.AuditTable/1")


def merged_files(
    sources: Sequence[str | os.PathLike[str]],
    *,
    keep_rates: bool,
    disjoint_clusters: bool = False,
) -> ModelTables:
    """Add up the tables in files; with `keep_rates` their training rates must be the same."""
    loaded = {str(p): _load(p) for p in _json_files(sources)}
    _refuse_twice(loaded)
    clustered = [p for p, a in loaded.items() if a.whole(next(iter(a.tables))).clustered]
    if clustered and len(loaded) > 1 and not disjoint_clusters:
        why = (
            f"{clustered[0]} was made with clusters: if one has rows in two of the files, these "
            "would count as independent"
        )
        raise InputError(
            why,
            "audit all rows together, or pass disjoint_clusters=True if no cluster is in two files",
            "audit all rows together, or pass --disjoint-clusters if no cluster is in two files",
        )
    return _merged(loaded, keep_rates=keep_rates)


def _json_files(sources: Sequence[str | os.PathLike[str]]) -> list[Path]:
    paths: list[Path] = []
    for source in sources:
        path = Path(source)
        check_path(source)
        if path.is_dir():
            found = sorted(path.rglob("*.json"))  # as in folders of predictions
        elif path.exists():
            found = [path]
        else:
            matches = glob.glob(pattern_of(path), recursive=True)  # noqa: PTH207 - of any folder
            found = [Path(match) for match in sorted(matches)]
        if not found:
            raise FileNotFoundError(
                f"there is no file {source}; name files that `equipoise audit --json` wrote"
            )
        paths += found
    seen: set[Path] = set()
    for path in paths:
        check_path(path)
        if path.resolve() in seen:
            raise ValueError(f"{path} is given twice, so its rows would count twice")
        seen.add(path.resolve())
    return paths


def _load(path: Path) -> ModelTables:
    with restoring(str(path)):
        data = read_json(path)
        form = data.get("format")
        if form in EARLIER:
            raise ValueError(f"it is of an earlier version ({form}); audit its rows again")
        if form not in (FORMAT, TABLE_FORMAT):
            raise ValueError("it is not what `equipoise audit --json` or AuditTable.to_dict writes")
        return ModelTables.from_dict(data if form == TABLE_FORMAT else unsealed(data))


def _refuse_twice(loaded: Mapping[str, ModelTables]) -> None:
    """Refuse files that have rows in common, as a total has with its parts."""
    seen: dict[tuple[str | None, str], str] = {}
    for path, audit in loaded.items():
        for model, sources in audit.sources.items():
            for name, digest in sorted(source.split(" ", 1)[::-1] for source in sources):
                other = seen.setdefault((model, digest), path)
                if other != path:
                    raise ValueError(
                        f"{other} and {path} were made from the same rows ({shown(name)}), which "
                        "would count twice; leave one of them out"
                    )


def _merged(loaded: Mapping[str, ModelTables], *, keep_rates: bool) -> ModelTables:
    """Add up tables of the same model and part, by the names of their files."""
    first, *more = loaded
    for name in more:
        _check_alike(name, loaded[first], loaded[name], keep_rates=keep_rates)
    audits = list(loaded.values())
    _make_alike(audits)
    tables: dict[str | None, dict[Key, list[AuditTable]]] = {}
    wholes: dict[str | None, list[AuditTable]] = {}
    dropped: dict[str | None, int] = {}
    sources: dict[str | None, frozenset[str]] = {}
    for audit in audits:
        for model, own in audit.tables.items():
            into = tables.setdefault(model, {})
            for key, table in own.items():
                into.setdefault(key, []).append(table)
            dropped[model] = dropped.get(model, 0) + audit.dropped[model]
        for model, whole in audit.wholes.items():
            wholes.setdefault(model, []).append(whole)
        for model, texts in audit.sources.items():
            sources[model] = sources.get(model, frozenset()) | texts
    for parts in tables.values():
        groups = (len({g for table in each for g in table.groups}) for each in parts.values())
        if (count := sum(groups)) > MOST_GROUPS:
            raise too_many_groups("the group", MOST_GROUPS, count)
    return dataclasses.replace(
        loaded[first],
        tables={
            model: {key: _total(parts[key]) for key in sorted(parts)}
            for model, parts in tables.items()
        },
        wholes={model: _total(own) for model, own in wholes.items()},
        dropped=dropped,
        sources=sources,
    )


def _total(tables: Sequence[AuditTable]) -> AuditTable:
    return AuditTable.total(tables, disjoint_clusters=True)


def _check_alike(name: str, first: ModelTables, own: ModelTables, *, keep_rates: bool) -> None:
    """Refuse tables that cannot be added."""

    def named(names: Iterable[str]) -> str:
        return ", ".join(names) or "nothing"

    if first.by != own.by:
        raise ValueError(f"{name}: is split by {named(own.by)}, others by {named(first.by)}")
    # tables of AuditTable.to_dict do not name their columns
    for what in first.columns.keys() & own.columns.keys():
        mine, theirs = (_listed(a.columns[what]) for a in (own, first))
        if mine != theirs:
            raise ValueError(
                f"{name}: {what} is {named(mine)}, in others {named(theirs)}; only tables of the "
                "same columns can be added"
            )
    if keep_rates and first.base_rates != own.base_rates:
        raise InputError(
            f"{name}: its rates of training labels differ from those of the other files",
            "make all with the same train=, or pass it here",
            "make all with the same --train, or pass it here",
        )
    for model, tables in own.tables.items():
        others = next(iter(first.tables.get(model, tables).values()))
        table = next(iter(tables.values()))
        for what, option in (("labels", "--labels"), ("n_bins", "--bins")):
            here, there = getattr(table, what), getattr(others, what)
            if here != there:
                raise InputError(
                    f"{name}: has {what} {here!r}, others {there!r}",
                    f"make all with the same {what}=",
                    f"make all with the same {option}",
                )


def _listed(names: str | Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _make_alike(audits: Sequence[ModelTables]) -> None:
    """Turn groups and parts into text where only some files have them as numbers."""
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
        a.wholes = {model: _with_text(table, mixed) for model, table in a.wholes.items()}


def _mixed(keys: Sequence[Key]) -> list[bool]:
    """Return for each position whether it has text as well as other values."""
    different = dict.fromkeys(keys)
    if len({len(key) for key in different}) > 1:
        raise ValueError(
            "the files' groups or parts are of different numbers of columns; only tables of the "
            "same columns can be added"
        )
    return [
        len({isinstance(v, str) for v in values}) > 1 for values in zip(*different, strict=True)
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
