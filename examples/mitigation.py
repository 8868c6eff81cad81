"""What two of Fairlearn's mitigation tools do to calibration, and what group temperatures do.

On COMPAS, which the package carries, with naive Bayes. ThresholdOptimizer and ExponentiatedGradient
change decisions until both groups get as many positive ones (demographic parity). Their decisions
are random: the chance of a positive one is all they have for a probability. It is audited here,
and then repaired with a sigmoid per group, the decisions staying theirs.
"""

import warnings

import numpy as np
import pandas as pd
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from equipoise import GroupCalibratedClassifier
from equipoise.auditing import AuditReport, audit
from equipoise.datasets import load
from equipoise.metrics import group_base_rates

SEED = 0
GROUP = "race=African-American"


class Mitigated(ClassifierMixin, BaseEstimator):
    """One of Fairlearn's tools as a classifier that finds the group in a column of X.

    Its probability of the positive class is the share of positive decisions in 50 draws.
    """

    def __init__(self, tool: BaseEstimator) -> None:
        self.tool = tool

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> "Mitigated":
        """Fit the tool."""
        self.classes_ = np.unique(y)
        with warnings.catch_warnings():
            # Fairlearn's own use of pandas
            warnings.simplefilter("ignore", DeprecationWarning)
            self.tool_ = clone(self.tool).fit(X, y, sensitive_features=X[GROUP])
        return self

    def predict(self, X: pd.DataFrame, draw: int = SEED) -> np.ndarray:
        """Return the tool's decisions."""
        if isinstance(self.tool_, ThresholdOptimizer):
            return self.tool_.predict(X, sensitive_features=X[GROUP], random_state=draw)
        return self.tool_.predict(X, random_state=draw)

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        """Return the chances of a negative and a positive decision."""
        chance = np.mean([self.predict(X, draw) for draw in range(50)], axis=0)
        return np.stack([1.0 - chance, chance], axis=1)


def add(table: Table, name: str, report: AuditReport, decisions: pd.Series, *, last: bool) -> None:
    """Add a model's figures; `decisions` has the groups as its index."""
    table.add_row(
        name,
        f"{report.overall['accuracy']:.3f}",
        " ".join(f"{rate:.3f}" for rate in decisions.groupby(level=0).mean()),
        " ".join(f"{values['ece']:.3f}" for values in report.groups.values()),
        f"{report.overall['brier']:.3f}",
        f"{report.proportional_equality['stochastic']:.3f}",
        end_section=last,
    )


def main() -> dict[str, tuple[AuditReport, AuditReport]]:
    """Fit, mitigate, repair and print; return the audits of each model, before and after."""
    data = load("compas")
    X = pd.DataFrame(data.X.astype(np.float64), columns=list(data.feature_names))
    train, test = train_test_split(
        np.arange(len(X)), test_size=0.4, random_state=SEED, stratify=2 * data.y + data.group
    )
    rates = group_base_rates(data.y[train], sensitive_features=data.group[train])
    thresholds = ThresholdOptimizer(estimator=GaussianNB(), predict_method="predict_proba")
    reduction = ExponentiatedGradient(GaussianNB(), DemographicParity(), max_iter=10)
    models = {
        "naive Bayes": (GaussianNB(), "temperature"),
        "ThresholdOptimizer": (Mitigated(thresholds), "platt"),
        "ExponentiatedGradient": (Mitigated(reduction), "platt"),
    }
    table = Table(
        title=f" {data.title}, {' and '.join(data.group_names)}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name in ("", "accuracy", "positive", "ECE", "Brier", "PE"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)

    reports = {}
    for name, (model, method) in models.items():
        repaired = GroupCalibratedClassifier(model, method=method, cv=3, sensitive_columns=GROUP)
        repaired.fit(X.iloc[train], data.y[train])
        own = repaired.estimator_  # the model itself, fitted on the same rows
        decisions = pd.Series(own.predict(X.iloc[test]), index=data.group[test])
        before, after = (
            audit(
                data.y[test],
                fitted.predict_proba(X.iloc[test]),
                sensitive_features=data.group[test],
                y_pred=decisions.to_numpy(),
                base_rates=rates,
            )
            for fitted in (own, repaired)
        )
        add(table, name, before, decisions, last=False)
        add(table, f"  + {method} per group", after, decisions, last=True)
        reports[name] = before, after
    console = Console(width=84)
    console.print()
    console.print(table)
    console.print(
        " positive: rate of positive decisions per group. ECE per group, Brier and PE (how\n"
        " far the ratio of the groups' rates is from that of the labels): 0 is best.\n\n"
        " Both tools even out the decisions, at some cost in accuracy; the chance of a\n"
        " positive decision is no probability of the outcome. A sigmoid per group makes\n"
        " it one, of the few values that are left. Where probabilities are used, group\n"
        " temperatures on the base model give them, and leave its decisions alone."
    )
    return reports


if __name__ == "__main__":
    main()
