"""The page of `benchmarks/choice.py`."""

from __future__ import annotations

import numpy as np
from scipy import stats

TITLES = {
    "compas": "COMPAS",
    "census-income": "Census-Income",
    "acs-massachusetts": "ACS Massachusetts",
    "mortgages": "Mortgages",
}
METRICS = {"log_loss": "log-loss", "accuracy": "accuracy", "pe": "PE", "ece": "ECE"}
WORSE = 0.002  # largest mean difference that is accepted, of log-loss and accuracy


def page(found: dict) -> str:
    """Return the page: what each part shows, with the numbers."""
    parts = [INTRODUCTION]
    if "public" in found:
        parts.append(_public(found["public"]))
    if "nothing" in found:
        parts.append(_rate(found["nothing"], "nothing", NOTHING))
    if "null" in found:
        parts.append(_rate(found["null"], "beats", NULL))
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """# Does the search choose well?

Made by `make choice` (`benchmarks/choice.py`); the numbers are in `benchmarks/results/choice.json`.
How the search chooses is described in [the guide](search.md)."""

NOTHING = """## Where nothing is to be gained

Made-up data: two groups that do not differ, and labels of a logistic model, which cross-entropy
fits. The search, with four losses, must say that nothing is to be gained in at least 90% of
repeats. It said so in **{count} of {total}** ({share:.1%})."""

NULL = """## Under the null

Every loss is replaced by cross-entropy, so that no loss can be better than the control, which gets
as many runs from as many initial weights. The verdict may say "beats cross-entropy" in at most 5%
of searches. It said so in **{count} of {total}** ({share:.1%}; 95% interval {low:.1%} to
{high:.1%})."""


def _rate(rows: list[dict], word: str, text: str) -> str:
    count = sum(row["said"] == word for row in rows)
    span = stats.binomtest(count, len(rows)).proportion_ci()
    return text.format(
        count=count, total=len(rows), share=count / len(rows), low=span.low, high=span.high
    )


def _public(sets: dict[str, list[dict]]) -> str:
    repeats = min(len(rows) for rows in sets.values())
    seconds = np.mean([row["seconds"] for rows in sets.values() for row in rows])
    lines = [
        "## On public data",
        "",
        f"{repeats} repeats on each set: 1,500 rows are drawn, a search with the defaults chooses "
        "and fits a model, and `GroupwiseMLPClassifier` with its defaults is fitted to the same "
        "rows. Both are measured on up to 30,000 other rows. The table shows the mean of each, and "
        "the mean paired difference (search minus default) with its 95% interval over the repeats. "
        f"A search took {seconds:.0f} seconds on average.",
        "",
        "| data | figure | default | search | difference | 95% interval |",
        "|---|---|---|---|---|---|",
    ]
    held = []
    for name, rows in sets.items():
        for metric, title in METRICS.items():
            ours, theirs = (np.array([r[k][metric] for r in rows]) for k in ("search", "default"))
            mean, low, high = _paired(ours - theirs)
            lines.append(
                f"| {TITLES[name]} | {title} | {theirs.mean():.4f} | {ours.mean():.4f} | "
                f"{mean:+.4f} | {low:+.4f} to {high:+.4f} |"
            )
            if metric in ("log_loss", "accuracy"):
                cost = mean if metric == "log_loss" else -mean
                held.append((cost <= WORSE, f"{TITLES[name]}, {title}: {cost:+.4f}"))
    missed = [text for good, text in held if not good]
    lines += [
        "",
        f"Rule: log-loss and accuracy not worse than the default's by more than {WORSE:g} on "
        "average. "
        + ("It holds on all four." if not missed else f"It does not hold on: {'; '.join(missed)}."),
        "",
        "What was asked for is the balanced score, PE and ECE in units of plain cross-entropy's "
        "(here: of its means on the set), lower being better; plain cross-entropy scores 2. The "
        "search takes nothing whose log-loss is more than 0.002 above the best; the default may, "
        "and so may score lower. How the search chooses was decided on other repeats, numbers 0 to "
        "19; these are numbers 20 on. That its model is the mean of eight networks was decided "
        "on them: with one, log-loss was the default's, and with four accuracy on ACS was lower by "
        "0.0025:",
        "",
        "| data | default | search | difference | 95% interval |",
        "|---|---|---|---|---|",
    ]
    for name, rows in sets.items():
        units = {m: np.mean([r["plain"][m] for r in rows]) for m in ("pe", "ece")}
        ours, theirs = (
            np.array([sum(r[k][m] / units[m] for m in units) for r in rows])
            for k in ("search", "default")
        )
        mean, low, high = _paired(ours - theirs)
        lines.append(
            f"| {TITLES[name]} | {theirs.mean():.3f} | {ours.mean():.3f} | {mean:+.3f} | "
            f"{low:+.3f} to {high:+.3f} |"
        )
    return "\n".join(lines)


def _paired(values: np.ndarray) -> tuple[float, float, float]:
    if len(values) < 2:
        return float(values.mean()), float("nan"), float("nan")
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)
