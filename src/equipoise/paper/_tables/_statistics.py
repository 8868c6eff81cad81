"""Table 2: the datasets."""

from __future__ import annotations

from collections.abc import Sequence

from equipoise.paper._digest import Digest
from equipoise.paper._floors import SPLITS
from equipoise.paper._published import published
from equipoise.paper._tables._table import Table


def statistics(digests: Sequence[Digest]) -> Table:
    """Return Table 2, the datasets."""
    rows = []
    for d in digests:
        paper, data = published()["table2"][d.dataset], d.facts["data"]
        ours = [data["rows"], data["columns"], data["a1"], data["y1_a0"], data["y1_a1"]]
        pairs = [value for pair in zip(paper, ours, strict=True) for value in pair]
        rows.append([d.dataset, *pairs, d.floors["model"], d.floors["labels"]])
    names = ("rows", "columns", "Pr[A=1]", "Pr[Y=1|A=0]", "Pr[Y=1|A=1]")
    header = [f"{name} {who}" for name in names for who in ("(paper)", "(ours)")]
    return Table(
        "table2",
        published()["titles"]["table2"],
        ("dataset", *header, "PE floor", "PE of the labels"),
        rows,
        (
            "The last two columns are what sampling alone gives, on average over "
            f"{SPLITS:,} random splits of the same sizes, against the rates of the training rows. "
            "PE floor: a model with a "
            "PE of 0 over the whole dataset (the out-of-fold probabilities of a logistic "
            "regression, with a bias for each group). PE of the labels: the true labels, and so a "
            "perfect classifier; splits on which it is infinite, because a group of the test set "
            "has only one class, are left out"
            + _infinite(digests)
            + ". A PE below the floor does not show a better model.",
            "Columns: ours are those of the network's input, a column for each category and "
            "without the group where it is left out.",
        ),
        (
            ("dataset", "{0}"),
            ("rows, columns\n(paper)", "{1} {3}"),
            ("(ours)", "{2} {4}"),
            ("Pr[A=1], Pr[Y=1|A=0], Pr[Y=1|A=1]\n(paper)", "{5} {7} {9}"),
            ("(ours)", "{6} {8} {10}"),
            ("PE floor,\nlabels", "{11} {12}"),
        ),
    )


def _infinite(digests: Sequence[Digest]) -> str:
    """Return how many splits have an infinite PE of the labels, where any have."""
    shares = {d.dataset: d.floors.get("infinite") or 0.0 for d in digests}
    some = ", ".join(f"{100 * share:.1f}% on {name}" for name, share in shares.items() if share)
    return f" ({some})" if some else ""
