"""Reports of one or several models, each with those of its parts."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise._files import replace_file, sealed
from equipoise.auditing._gates import Gate, OnInterval, Outcome, group_named
from equipoise.auditing._merged import FORMAT
from equipoise.auditing._model_tables import ModelTables
from equipoise.auditing._report import AuditReport, report_of, without_reference
from equipoise.metrics import AuditTable, largest_group

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclasses.dataclass(frozen=True, repr=False)
class AuditReports(Mapping[str | None, AuditReport]):
    """Reports of several models by name; a single model may have the name None.

    Attributes
    ----------
    reports
        Report of each model.
    tables
        The sums behind them, which `merge_audits` adds up.
    """

    reports: Mapping[str | None, AuditReport]
    tables: ModelTables

    def __getitem__(self, model: str | None) -> AuditReport:
        return self.reports[model]

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.reports)

    def __len__(self) -> int:
        return len(self.reports)

    def check(
        self, gates: Sequence[Gate], on_interval: OnInterval | None = None
    ) -> list[tuple[Gate, str | None, Outcome]]:
        """Check gates on every model; see `Gate.check`."""
        outcomes = []
        for gate in gates:
            for model, report in self.items():
                try:
                    outcomes += [(gate, model, o) for o in gate.check(report, on_interval)]
                except ValueError as error:
                    of = "" if model is None else f" of {model}"
                    raise ValueError(f"gate {gate.text!r}{of}: {error}") from None
        return outcomes

    def to_dict(self, outcomes: Sequence[tuple[Gate, str | None, Outcome]] = ()) -> dict[str, Any]:
        """Return figures, sums and outcomes of gates as plain values, ready for strict JSON.

        With a digest of all that, and the fingerprints of what each model's rows were read from,
        for which local files are read once more.
        """
        sources = self.tables.fingerprints()
        models = [
            {"model": model, "sources": sources[model], **report.to_dict()}
            for model, report in self.items()
        ]
        data = {
            "format": FORMAT,
            **self.tables.to_dict(),
            "models": models,
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
        return sealed(data)

    def save(
        self,
        path: str | os.PathLike[str],
        outcomes: Sequence[tuple[Gate, str | None, Outcome]] = (),
    ) -> None:
        """Write what `to_dict` returns; an interrupted write leaves no partial file."""
        # ASCII, since a name may hold half of a surrogate pair, which UTF-8 cannot encode
        text = json.dumps(self.to_dict(outcomes), indent=1, allow_nan=False, ensure_ascii=True)
        replace_file(Path(path), (text + "\n").encode())

    def __rich__(self) -> RenderableType:
        """Return the reports as rich prints them."""
        from equipoise.auditing._render import all_models

        return all_models(self, self.tables.by)

    def __str__(self) -> str:
        from equipoise.auditing._render import as_text

        return as_text(self)

    __repr__ = __str__


WHOLE = 0.5
"""Share of all rows in the error rate of a report that is split; its parts share the rest."""


def report_models(tables: ModelTables, reference_group: Any, **options: Any) -> AuditReports:
    """Report on each model, and on its parts; `options` are those of `report_of`."""
    found: dict[str | None, AuditReport] = {}
    for model, parts in tables.tables.items():
        whole = tables.whole(model)
        reference = _reference(reference_group, whole)

        def report(
            table: AuditTable, share: float, dropped: int = 0, reference: Any = reference
        ) -> AuditReport:
            lacks = reference != "all" and reference not in table.groups
            made = report_of(
                table,
                base_rates=tables.rates_for(table),
                reference_group=None if lacks else reference,
                dropped=dropped,
                share=share,
                **options,
            )
            return without_reference(made, reference) if lacks else made

        total = report(whole, WHOLE if tables.by else 1.0, tables.dropped[model])
        with warnings.catch_warnings():
            # the warnings for all rows were given; a part shows what is undefined
            warnings.simplefilter("ignore")
            share = (1.0 - WHOLE) / max(1, len(parts))
            split = {key: report(part, share) for key, part in parts.items()} if tables.by else {}
        found[model] = dataclasses.replace(total, by=split)
    return AuditReports(found, tables)


def _reference(reference: Any, whole: AuditTable) -> Hashable:
    # the largest group of a part may be another than that of all rows
    if reference is None:
        return largest_group(whole)
    if reference in whole.groups or reference == "all" or not isinstance(reference, str):
        return reference  # type: ignore[no-any-return]
    try:
        return group_named(reference, whole.groups)
    except ValueError as error:
        raise ValueError(f"reference group: {error}") from None
