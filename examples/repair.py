"""Fit a classifier, audit it per group, repair its probabilities with one temperature per group.

On German credit and COMPAS, which the package carries. Half of the rows train the classifier, a
quarter fits the temperatures, and the figures are those of the last quarter.
"""

import warnings

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.base import ClassifierMixin
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from equipoise import GroupTemperatureScaling
from equipoise.auditing import AuditReport, audit
from equipoise.datasets import Dataset, load
from equipoise.metrics import group_base_rates

SEED = 0


def split(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows for training, calibration and testing, stratified by label and group."""
    cells = 2 * data.y + data.group
    train, rest = train_test_split(
        np.arange(len(cells)), test_size=0.5, random_state=SEED, stratify=cells
    )
    calibrate, test = train_test_split(rest, test_size=0.5, random_state=SEED, stratify=cells[rest])
    return train, calibrate, test


def show(
    console: Console,
    title: str,
    data: Dataset,
    reports: tuple[AuditReport, AuditReport],
    scaling: GroupTemperatureScaling,
) -> None:
    """Print the audit before and after."""
    before, after = reports
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("", "rows", "T", "accuracy", "ECE", "→", "log-loss", "→"):
        table.add_column(name, justify="right" if name else "left")

    def line(name: str, rows: float, t: str, old: dict, new: dict, *, last: bool = False) -> None:
        if old["accuracy"] != new["accuracy"]:
            raise AssertionError("temperatures must not change a prediction")
        better = [
            f"[{'green' if new[m] < old[m] else 'red'}]{new[m]:.3f}[/]" for m in ("ece", "log_loss")
        ]
        table.add_row(
            name, f"{rows:,.0f}", t, f"{old['accuracy']:.3f}",
            f"{old['ece']:.3f}", better[0], f"{old['log_loss']:.3f}", better[1],
            end_section=last,
        )  # fmt: skip

    counts = before.table["rows"]
    for i, group in enumerate(before.groups):
        line(
            data.group_names[group],
            counts[i],
            f"{scaling.temperatures_[group]:.2f}",
            before.groups[group],
            after.groups[group],
            last=i == len(counts) - 1,
        )
    line("all", counts.sum(), "", before.overall, after.overall)
    console.print(table)
    pe = [r.proportional_equality["stochastic"] for r in reports]
    console.print(f" Proportional equality (0 is best): {pe[0]:.3f} → [bold]{pe[1]:.3f}[/]\n")


def run(name: str, model: ClassifierMixin, console: Console) -> tuple[AuditReport, AuditReport]:
    """Fit, audit, repair, audit again."""
    data = load(name)
    train, calibrate, test = split(data)
    model.fit(data.X[train], data.y[train])

    scaling = GroupTemperatureScaling(from_proba=True, shrinkage="auto")
    scaling.fit(
        model.predict_proba(data.X[calibrate]),
        data.y[calibrate],
        sensitive_features=data.group[calibrate],
    )

    rates = group_base_rates(data.y[train], sensitive_features=data.group[train])
    prob = model.predict_proba(data.X[test])
    group = data.group[test]
    fixed = scaling.predict_proba(prob, sensitive_features=group)
    before, after = (
        audit(data.y[test], p, sensitive_features=group, base_rates=rates) for p in (prob, fixed)
    )
    title = f"{data.title}, {type(model).__name__}"
    show(console, title, data, (before, after), scaling)
    return before, after


def main() -> None:
    """Run both datasets."""
    console = Console()
    # a warning is part of what the demo shows, in one line
    warnings.showwarning = lambda message, *_: console.print(f" [yellow]Warning:[/] {message}")
    console.print("\n[bold]Test rows before → after one temperature per group[/]\n")
    run("german", GradientBoostingClassifier(n_estimators=300, random_state=SEED), console)
    run("compas", GaussianNB(), console)
    console.print(
        " T > 1: too sure of itself in that group. No prediction has changed.\n"
        " A few hundred rows are noisy: try another SEED in examples/repair.py."
    )


if __name__ == "__main__":
    main()
