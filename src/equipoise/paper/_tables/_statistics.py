"""Table 2: the datasets."""

from __future__ import annotations

from collections.abc import Sequence

from equipoise.paper._digest import Digest
from equipoise.paper._published import published
from equipoise.paper._tables._table import Table


def statistics(digests: Sequence[Digest]) -> Table:
    """Return Table 2, the datasets."""
    rows = []
    for d in digests:
        paper, data = published()["table2"][d.dataset], d.facts["data"]
        ours = [data["rows"], data["columns"], data["a1"], data["y1_a0"], data["y1_a1"]]
        pairs = [value for pair in zip(paper, ours, strict=True) for value in pair]
        rows.append([d.dataset, *pairs, d.mean_oracle])
    names = ("rows", "columns", "Pr[A=1]", "Pr[Y=1|A=0]", "Pr[Y=1|A=1]")
    header = [f"{name} {who}" for name in names for who in ("(paper)", "(ours)")]
    return Table(
        "table2",
        published()["titles"]["table2"],
        ("dataset", *header, "PE of the test labels"),
        rows,
        (
            "PE of the test labels: what the true labels of the test set, and so a perfect "
            "classifier, score against the rates of the training set, on average over the splits. "
            "A PE below it does not show a better model. Columns: ours are those of the network's "
            "input, a column for each category and without the group where it is left out.",
        ),
        (
            ("dataset", "{0}"),
            ("rows, columns\n(paper)", "{1} {3}"),
            ("(ours)", "{2} {4}"),
            ("Pr[A=1], Pr[Y=1|A=0], Pr[Y=1|A=1]\n(paper)", "{5} {7} {9}"),
            ("(ours)", "{6} {8} {10}"),
            ("PE of the\ntest labels", "{11}"),
        ),
    )
