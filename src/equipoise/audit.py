"""Audit predictions: every metric, overall and per group, and what the model does to the rates."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from equipoise.metrics import METRICS, GroupRates, by_group, overall, proportional_equality_of
from equipoise.table import AuditTable

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

__all__ = ["AuditReport", "AuditTable", "audit"]


def group_name(group: Hashable) -> str:
    """Return how a group is shown: its value, or its values joined."""
    return ", ".join(str(v) for v in group) if isinstance(group, tuple) else str(group)


@dataclasses.dataclass(frozen=True, repr=False)
class AuditReport:
    """What `audit` found.

    Attributes
    ----------
    overall
        Metric to value, of all rows.
    groups
        Group to metric to value.
    proportional_equality
        "stochastic" and "deterministic" to value.
    table
        The sums behind the figures.
    """

    overall: Mapping[str, float]
    groups: Mapping[Hashable, Mapping[str, float]]
    proportional_equality: Mapping[str, float]
    table: AuditTable

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: a row "overall" and one per group, the metrics as columns."""
        import pandas as pd

        rows = self.table["rows"]
        frame = pd.DataFrame([self.overall, *self.groups.values()])
        frame.insert(0, "rows", [int(rows.sum()), *rows.astype(int)])
        frame.index = pd.Index(["overall", *self.groups], name="group", tupleize_cols=False)
        return frame

    def __rich__(self) -> Table:
        """Return the report as a table that rich prints."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        kinds = ", ".join(f"{v:.4f} {k}" for k, v in self.proportional_equality.items())
        caption = f"Proportional equality: {kinds}"
        table = Table(
            caption=caption, caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        table.add_column("group")
        table.add_column("rows", justify="right")
        for name in self.overall:
            table.add_column(METRICS[name].title, justify="right")
        rows = self.table["rows"]
        lines = [(Text("overall"), rows.sum(), self.overall)]
        lines += [
            (Text(group_name(g)), rows[i], values)
            for i, (g, values) in enumerate(self.groups.items())
        ]
        for i, (group, count, values) in enumerate(lines):
            cells = (f"{value:.4f}" for value in values.values())
            table.add_row(group, f"{int(count):,}", *cells, end_section=i == 0)
        return table

    def __str__(self) -> str:
        """Return the table as plain text."""
        import io

        from rich.console import Console

        out = io.StringIO()
        Console(file=out, width=120, color_system=None).print(self)
        return out.getvalue()

    __repr__ = __str__


def audit(
    y_true: Any,
    y_prob: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    n_bins: int = 15,
    labels: Any = None,
    y_pred: Any = None,
    base_rates: GroupRates | None = None,
    reference_group: Any = None,
) -> AuditReport:
    """Measure predictions overall and per group.

    Parameters
    ----------
    y_true
        Labels, of any coding.
    y_prob
        Probabilities (n, K), or (n,) for the second label of a binary problem.
    sensitive_features
        One column, or several whose intersection is meant.
    sample_weight
        Weight of each row.
    n_bins
        Number of confidence bins.
    labels
        Label of each column of `y_prob`.
    y_pred
        Decisions made elsewhere, for accuracy and deterministic proportional equality.
    base_rates
        Rates of the training labels, from `group_base_rates`; by default those of `y_true`.
    reference_group
        The group the others are compared with, as in `proportional_equality`.

    Examples
    --------
    >>> report = audit([0, 1, 1, 0], [0.2, 0.9, 0.6, 0.3], sensitive_features=list("abab"))
    >>> report.overall["accuracy"], round(report.groups["a"]["ece"], 3)
    (1.0, 0.3)
    """
    table = AuditTable.from_arrays(
        y_true,
        y_prob,
        sensitive_features=sensitive_features,
        sample_weight=sample_weight,
        n_bins=n_bins,
        labels=labels,
        y_pred=y_pred,
    )
    per_group = {name: by_group(table, name) for name in METRICS}
    # one group has nothing to be compared with, and its other figures still stand
    pe = {
        kind: float("nan")
        if len(table.groups) < 2
        else proportional_equality_of(
            table, kind=kind, base_rates=base_rates, reference_group=reference_group
        )
        for kind in ("stochastic", "deterministic")
    }
    return AuditReport(
        overall={name: overall(table, name) for name in METRICS},
        groups={g: {name: per_group[name][g] for name in METRICS} for g in table.groups},
        proportional_equality=pe,
        table=table,
    )
