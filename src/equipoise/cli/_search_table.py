"""What `equipoise search` prints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise.cli._shared import console, printed_whole

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from equipoise.search import FrontierSearch

ADDED = ("dca", "mdca", "mmce", "mmce-w")
"""Losses whose term has a strength."""


def show(finder: FrontierSearch, out: Path) -> None:
    """Print the frontier, the choice, how sure it is, and the verdict."""
    from equipoise._inputs import counted

    choice = finder.choice_
    screen = console()
    printed_whole(screen, _frontier(finder))
    groups = len(finder.groups_) > 1
    rho = f", rho {choice['weights']}" if choice["loss"] != "ce" else ""
    lam = f", lam {choice['lam']:g}" if choice["loss"] in ADDED else ""
    lines = [f"Chosen: {choice['loss']}{rho}{lam}, calibrate {choice['calibrate']}."]
    names = {"pe": "PE", "ece": "ECE", "accuracy": "accuracy", "log_loss": "log-loss"}
    figures = [
        f"{name} {_span(choice, metric)}"
        for metric, name in names.items()
        if (groups or metric != "pe") and math.isfinite(choice[f"test_{metric}"])
    ]
    if figures:
        lines.append(
            "What the search chooses without the rows that are measured: "
            + ", ".join(figures)
            + "."
        )
    if not _on_frontier(finder):
        lines.append(
            "It is not on the frontier above, which knows no limit of log-loss (--log-loss-slack)."
        )
    others, rivals = choice["within_limits"] - 1, choice["rivals"]
    if others > 0:
        lines.append(
            "How sure: within the limits of accuracy and log-loss "
            f"{'is' if others == 1 else 'are'} {counted(others, 'other candidate')}, "
            f"and {rivals} of them {'is' if rivals == 1 else 'are'} not clearly worse."
        )
    if choice.get("confidence") is not None:
        lines.append(
            "Probability that the losses are better than cross-entropy given as many runs: "
            f"{choice['confidence']:.0%}."
        )
    for line in (*lines, finder.verdict_, f"Model, frontier and results: {out}"):
        screen.print(line, soft_wrap=not screen.is_terminal)


def _on_frontier(finder: FrontierSearch) -> bool:
    names, choice = ("loss", "weights", "lam", "calibrate"), finder.choice_
    rows = _rows(finder)[list(names)].to_dict("records")
    return {name: choice[name] for name in names} in rows


def _rows(finder: FrontierSearch) -> pd.DataFrame:
    """Return the frontier without those that only their own luck put there."""
    rows = finder.frontier_
    return rows[rows["frequency"] > 0] if rows["frequency"].max() > 0 else rows


def _frontier(finder: FrontierSearch) -> Table:
    from rich import box
    from rich.table import Table

    from equipoise._inputs import shown

    groups = len(finder.groups_) > 1
    against = f" PE compares with group {shown(finder.reference_group_)!r}."
    table = Table(
        title=f"Frontier, within {finder.slack:g} of the best accuracy",
        caption="Means on held-out rows that did not put a candidate there, with 95% intervals "
        f"over the splits.{against if groups else ''}",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        pad_edge=False,
    )
    for name in ("loss", "rho", "lam", "calibrate"):
        table.add_column(name, no_wrap=True)
    metrics = {"pe": "PE", "ece": "ECE", "accuracy": "accuracy"}
    if not groups:
        del metrics["pe"]
    for name in metrics.values():
        table.add_column(name, justify="right")
    for row in _rows(finder).to_dict("records"):
        lam = f"{row['lam']:g}" if row["loss"] in ADDED else "-"
        cells = [row["loss"], row["weights"], lam, row["calibrate"]]
        table.add_row(*cells, *(_span(row, m) for m in metrics))
    return table


def _span(row: dict[str, Any], metric: str) -> str:
    """Return a figure with its interval, as far as there is one."""
    value, low, high = (row[f"test_{metric}{end}"] for end in ("", "_low", "_high"))
    if not math.isfinite(value):
        return "not known"
    text = f"{value:.3f}"
    if not (math.isfinite(low) and math.isfinite(high)):
        return text
    if metric in ("accuracy", "ece"):  # at most 1, which Student's t does not know
        high = min(high, 1.0)
    return f"{text} [{max(low, 0.0):.3f}, {high:.3f}]"
