"""The page of the results, for a reader who will cite it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._files import replace_file
from equipoise.paper._digest import Digest
from equipoise.paper._figures import rendered
from equipoise.paper._published import paper_name, published
from equipoise.paper._render import markdown
from equipoise.paper._reproduce import saved_digests
from equipoise.paper._study._design import claims, registered, studies
from equipoise.paper._study._digest import StudyDigest
from equipoise.paper._study._inference import Judgement
from equipoise.paper._study._methods import methods_page
from equipoise.paper._study._picture import claim_figure
from equipoise.paper._study._summary import (
    judgements,
    noise,
    of_network,
    percent,
    plain_level,
    winners,
)
from equipoise.paper._tables._optimised import (
    best_published,
    control_change,
    published_change,
)
from equipoise.paper._tables._table import Table

PICTURE = "claims.svg"
FRONTIERS = "frontiers.svg"

MEASURED = {"amplification": "log amplification", "ece": "ECE", "class_ece": "class-wise ECE"}


def write_page(folder: Path, digests: Sequence[StudyDigest], command: Sequence[str]) -> None:
    """Write the page, its picture and the page on methods; existing files are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    replica = saved_digests(folder, "paper")
    linear = of_network(digests, "linear")
    if len(linear) > 1:
        found = judgements(digests)
        level = {name: plain_level(linear, name) for name in ("amplification", "ece")}
        figure = claim_figure(found, level, published_values(), rerun_values(replica))
        replace_file(folder / PICTURE, rendered(figure, "svg"))
        _put(folder / "METHODS.md", methods_page(digests))
    _put(folder / "README.md", page(folder, digests, replica, command))


def _put(path: Path, text: str) -> None:
    replace_file(path, text.encode())


def published_values() -> dict[str, float]:
    """Return the change that the paper published, in percent, by claim: the mean over its datasets.

    Of fairness at the best ECE the median: its mean is that of one dataset.
    """

    def mean(table: str, column: int) -> float:
        return -float(np.mean([values[column] for values in published()[table].values()]))

    hurt = [values[1] for values in published()["table5"].values()]
    return {
        "losses-fairness": mean("table4", 1),
        "losses-calibration": mean("table5", 2),
        "scaling-calibration": mean("table3", 1),
        "scaling-fairness": mean("table3", 0),
        "calibration-hurts": -float(np.median(hurt)),
    }


def rerun_values(replica: Sequence[Digest]) -> dict[str, float]:
    """Return what cross-entropy gains when it is re-run as often, by the paper's convention."""
    return _replica_values(replica, control_change)


def technique_values(replica: Sequence[Digest]) -> dict[str, float]:
    """Return what the best technique of each dataset gains, by the paper's convention."""
    return _replica_values(replica, published_change)


def _replica_values(
    replica: Sequence[Digest], change: Callable[[Digest, str, str], NDArray[Any]]
) -> dict[str, float]:
    """Return the mean change over datasets, in percent, by claim; nothing without the replica."""
    return {
        claim: -float(np.mean([_mean(change(d, t, best_published(d, t)))[column] for d in replica]))
        for claim, t, column in (
            ("losses-fairness", "table4", 0),
            ("losses-calibration", "table5", 1),
        )
        if replica
    }


def _mean(change: NDArray[Any]) -> NDArray[Any]:
    """Return the mean over seeds, without those where it is not defined."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nanmean(np.where(np.isfinite(change), change, np.nan), axis=0))


# --- claims ----------------------------------------------------------------------------------


def claim_table(digests: Sequence[StudyDigest]) -> Table:
    """Return the claims with their verdicts."""
    linear = of_network(digests, "linear")
    header = ("claim", "the paper", "effect", "in %", "p (Holm)", "verdict", "detectable")
    if len(linear) < 2:
        return Table("verdicts", "Verdicts need two datasets", header, [])
    theirs, rows = _published_words(), []
    for one in judgements(digests):
        level = plain_level(linear, one.claim.outcome)
        rows.append(
            [
                one.claim.text,
                theirs[one.claim.name],
                _effects(one),
                _percents(one, level),
                f"{one.adjusted:.3f}" if one.adjusted >= 0.001 else "<0.001",
                one.verdict,
                f"{abs(percent(one.claim.outcome, one.first.detectable, level)):.0f}%",
            ]
        )
    return Table(
        "verdicts",
        f"The registered claims, {_over(linear)}",
        header,
        rows,
        (
            "Effect: mean over the datasets of the difference between what is claimed to be better "
            "and its control, with its 95% t interval; below 0 is fairer or better calibrated. "
            "Log amplification is mean |log(q1/q0) - log(r1/r0)| over the classes, an ECE is "
            "compared by its logarithm. In %: of cross-entropy's own value. p: two-sided, "
            "Holm-adjusted over all claims. Equivalent: the interval lies within "
            "0.03 log amplification or 5% of the ECE. Detectable: the smallest effect that would "
            "have been found in 4 of 5 such studies.",
        ),
        (
            ("claim", "{0}"),
            ("effect (in %)", "{2} ({3})"),
            ("verdict", "{5}"),
            ("p", "{4}"),
            ("detectable", "{6}"),
        ),
    )


def _over(linear: Sequence[StudyDigest]) -> str:
    """Return the number of datasets in words; verdicts are final with all of them."""
    wanted = len(_registered_linear())
    if len(linear) == wanted:
        return f"over {wanted} datasets"
    return f"interim, over {len(linear)} of {wanted} datasets: nothing is decided yet"


def _registered_linear() -> list[str]:
    return [name for name, study in studies().items() if study.network == "linear"]


def _effects(one: Judgement) -> str:
    return "; ".join(
        f"{'' if len(one.effects) == 1 else _measured(name) + ' '}"
        f"{own.mean:+.3f} [{own.low:+.3f}, {own.high:+.3f}]"
        for name, own in one.effects.items()
    )


def _measured(name: str) -> str:
    return MEASURED.get(name, name.replace("_", "-"))


def _percents(one: Judgement, level: float) -> str:
    own, outcome = one.first, one.claim.outcome
    mean, low, high = (percent(outcome, v, level) for v in (own.mean, own.low, own.high))
    return f"{mean:+.0f}% [{low:+.0f}, {high:+.0f}]"


def _published_words() -> dict[str, str]:
    """Return what the paper says or published, by claim."""
    values = published_values()
    found = {claim.name: f"“{claim.paper}”" for claim in claims()}
    found |= {
        "losses-fairness": f"PE {values['losses-fairness']:+.0f}% (best technique, Table 4)",
        "losses-calibration": f"ECE {values['losses-calibration']:+.0f}% (best technique, Table 5)",
        "mmce-fairest": "best on 5 of 7 (Table 4)",
        "dca-calibration": "best on 5 of 7 (Table 5)",
        "grouped-fairness": "not tested",
        "grouped-calibration": "not tested",
        "scaling-calibration": f"ECE {values['scaling-calibration']:+.1f}%, 7 of 7 gain (Table 3)",
        "scaling-fairness": f"PE {values['scaling-fairness']:+.1f}%, 4 of 7 gain (Table 3)",
        "calibration-hurts": f"PE {values['calibration-hurts']:+.0f}% (median, Table 5)",
        "bcts": "ours",
    }
    return found


# --- the page --------------------------------------------------------------------------------


def page(
    folder: Path,
    digests: Sequence[StudyDigest],
    replica: Sequence[Digest],
    command: Sequence[str],
) -> str:
    """Return the page; existing figures of the folder are shown."""
    missing = [name for name in studies() if name not in {d.name for d in digests}]
    linear, relu = (of_network(digests, n) for n in ("linear", "relu"))
    parts = ["# What of the paper holds", _summary(digests, replica)]
    if missing:
        parts.append(f"*Not run yet: {', '.join(missing)}.*")
    if len(linear) > 1:
        parts += [
            f"![Each claim's pooled effect]({PICTURE})",
            "Each claim's mean effect over the datasets with its 95% interval; what the paper "
            "published (diamond); what plain cross-entropy gains when it is re-run as often and "
            "chosen the same way (square); and, in grey, effects too small to be found here.",
            f"## The claims, {_over(linear)}",
            _without_title(markdown(claim_table(digests))),
        ]
    if len(relu) > 1:
        parts += ["### With the paper's network, ReLU on its outputs", _relu(digests, relu)]
    if linear:
        parts += ["## What is noise", _noise(linear, relu)]
    if (folder / FRONTIERS).exists():
        parts += [
            "## Trade-offs, as published and validated",
            f"![Frontiers of PE and ECE]({FRONTIERS})",
        ]
    parts += ["## More", _more(folder, digests, command)]
    return "\n\n".join(parts) + "\n"


def _summary(digests: Sequence[StudyDigest], replica: Sequence[Digest]) -> str:
    """Return three sentences: what reproduces as published, why, and what is left."""
    said = []
    if replica:
        best, again = technique_values(replica), rerun_values(replica)
        said += [
            f"**As published, the paper reproduces**: chosen on the test set, its best technique "
            f"lowers PE by {-best['losses-fairness']:.0f}% and ECE by "
            f"{-best['losses-calibration']:.0f}% against one run of cross-entropy.",
            f"**Most of that is the choice**: plain cross-entropy, re-run as often and chosen the "
            f"same way, lowers PE by {-again['losses-fairness']:.0f}% and ECE by "
            f"{-again['losses-calibration']:.0f}%.",
        ]
    linear = of_network(digests, "linear")
    if len(linear) < len(_registered_linear()):
        said.append(
            f"**What is left is not decided yet**: the study that decides it is there for "
            f"{len(linear)} of {len(_registered_linear())} datasets."
        )
    else:
        runs = sum(len(d.study["arms"]) * d.study["repeats"] * d.study["folds"] for d in digests)
        said.append(
            f"**What is left**, with choices on other rows, {runs:,} runs and {len(linear)} "
            f"datasets: of ten claims, {_counts(judgements(digests))}."
        )
    return "\n".join(said)


def _counts(found: Sequence[Judgement]) -> str:
    """Return how many claims have each verdict, and which, where there are few."""
    parts = []
    for word, text in {
        "shown": "shown",
        "refuted": "refuted",
        "equivalent": "shown to make no difference that matters",
        "undecided": "undecided",
    }.items():
        own = [_short(j.claim.text) for j in found if j.verdict == word]
        named = f" ({'; '.join(own)})" if own and word != "undecided" else ""
        parts += [f"{len(own) or 'none'} {'is' if len(own) <= 1 else 'are'} {text}{named}"]
    return ", ".join(parts)


def _short(text: str) -> str:
    return text if text.split(" ")[0].isupper() and text[1] != " " else text[0].lower() + text[1:]


def _relu(digests: Sequence[StudyDigest], relu: Sequence[StudyDigest]) -> str:
    level = {n: plain_level(relu, n) for n in ("amplification", "ece")}
    lines = ["| claim | effect | in % | verdict by the same rule |", "|---|---|---|---|"]
    lines += [
        f"| {j.claim.text} | {_effects(j)} | {_percents(j, level[j.claim.outcome])} | {j.verdict} |"
        for j in judgements(digests, "relu")
    ]
    return "\n".join(lines) + (
        f"\n\nOver {len(relu)} datasets; the registered verdicts are those of linear outputs."
    )


def _noise(linear: Sequence[StudyDigest], relu: Sequence[StudyDigest]) -> str:
    header = (
        "dataset", "rows", "smallest group", "amplification", "floor", "ECE", "floor of the ECE",
        "fairest loss", "changes", "best calibrated loss", "changes",
    )  # fmt: skip
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    moved, total = 0, 0
    for digest in linear:
        row = noise(digest)
        cells = [row["dataset"], f"{row['rows']:,}", f"{row['smallest group']:,}"]
        cells += [f"{row[k]:.3f}" for k in ("amplification", "amplification floor")]
        cells += [f"{row[k]:.3f}" for k in ("ece", "ece floor")]
        for outcome in ("amplification", "ece"):
            best, changed, repeats = winners(digest, outcome)
            cells += [paper_name(best).replace("*", "\\*"), f"{changed} of {repeats}"]
            moved, total = moved + changed, total + repeats
        lines.append("| " + " | ".join(cells) + " |")
    text = [
        "Plain cross-entropy's outcomes on the pooled out-of-fold rows, beside the *floor*: what a "
        "model whose probabilities are right scores on as many rows, because labels vary. "
        "*Changes*: how often the best loss is another one when one repeat is left out "
        f"({moved} of {total} in all).",
        "\n".join(lines),
    ]
    capped = [d.facts["at_the_cap"] for d in linear]
    text.append(
        f"Of the runs with linear outputs, {100 * float(np.mean(capped)):.1f}% were still at their "
        f"best when their epochs ended (at most {100 * max(capped):.1f}% on a dataset)."
    )
    if relu:
        losses: dict[str, list[float]] = {}
        for digest in relu:
            for arm, share in digest.facts["dead"].items():
                losses.setdefault(arm.split(" ")[0], []).append(share)
        each = ", ".join(
            f"{paper_name(k)} {100 * float(np.mean(v)):.0f}%" for k, v in losses.items()
        )
        text.append(
            "Networks with ReLU on their outputs die: on most test rows both outputs are 0, at the "
            f"chosen epoch, in these shares of runs: {each}.".replace("*", "\\*")
        )
    return "\n\n".join(text)


def _more(folder: Path, digests: Sequence[StudyDigest], command: Sequence[str]) -> str:
    design = registered()["design"]
    made = digests[0].facts["versions"] if digests else {}
    lines = [
        "- [Which method should I use](METHODS.md): every loss, strength and calibration.",
        "- [The design](../../src/equipoise/paper/decisive.toml), registered before its runs: "
        "arms, outcomes, claims and thresholds. Every dataset is divided into "
        f"{design['folds']} folds; the epoch of a run is that of the least validation log-loss.",
    ]
    if (folder / "REPLICA.md").exists():
        lines.append(
            "- [The paper's Tables 2 to 8 and its claims, reproduced as published](REPLICA.md), "
            "with departures and readings."
        )
    lines.append(
        "- `decisive/`: a folder for each dataset and network, with the outcomes of each repeat, "
        "arm and calibration, effects with bootstrap intervals, and facts."
    )
    text = "\n".join(lines) + f"\n\n    {shlex.join(command)}\n"
    versions = ", ".join(f"{k} {v}" for k, v in sorted(made.items()))
    return text + f"\nEvery number of this page is made by this command; made with {versions}."


def _without_title(text: str) -> str:
    return text.split("\n", 2)[2].strip()
