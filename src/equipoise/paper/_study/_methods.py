"""The page "Which method should I use": what each loss and calibration changes, by size of data."""

from __future__ import annotations

from collections.abc import Sequence

from equipoise.paper._study._design import registered
from equipoise.paper._study._digest import StudyDigest
from equipoise.paper._study._inference import Pooled
from equipoise.paper._study._summary import (
    LARGE,
    Treatment,
    of_network,
    percent,
    plain_level,
    treatments,
)

SHOWN = ("amplification", "ece", "class_ece", "log_loss", "accuracy")
HEADINGS = {
    "amplification": "unfairness",
    "ece": "ECE",
    "class_ece": "class-wise ECE",
    "log_loss": "log-loss",
    "accuracy": "accuracy",
}


def methods_page(digests: Sequence[StudyDigest]) -> str:
    """Return the page, from the linear networks."""
    linear = of_network(digests, "linear")
    small = [d for d in linear if d.facts["data"]["rows"] < LARGE]
    large = [d for d in linear if d.facts["data"]["rows"] >= LARGE]
    parts = [
        "# Which method should I use",
        "From the decisive study ([README](README.md)): mean changes against plain cross-entropy "
        "without calibration, over datasets, with 95% t intervals. Unfairness is the mean absolute "
        "log amplification; it and the ECEs are in percent of cross-entropy's own, log-loss and "
        "accuracy in points of a hundredth. A **bold** change is one whose interval excludes 0; "
        "the many are not adjusted for each other. Calibrations are fitted to a validation set of "
        "an eighth of the rows.",
    ]
    for title, own in (
        (f"Small data ({_span(small)})", small),
        (f"Large data ({_span(large)})", large),
    ):
        if len(own) > 1:
            found = treatments(own)
            level = {name: plain_level(own, name) for name in SHOWN}
            parts += [f"## {title}", in_short(found, level), *_tables(found, level)]
    return "\n\n".join(parts) + "\n"


def _span(digests: Sequence[StudyDigest]) -> str:
    if not digests:
        return "none"
    rows = sorted(d.facts["data"]["rows"] for d in digests)
    least = sorted(d.facts["smallest_group"] for d in digests)
    return (
        f"{len(digests)} datasets of {rows[0]:,} to {rows[-1]:,} rows, smallest groups of "
        f"{least[0]:,} to {least[-1]:,}"
    )


def in_short(found: Sequence[Treatment], level: dict[str, float]) -> str:
    """Return what helps at no cost that is shown, and what harms, as a list."""
    guard = registered()["inference"]["margins"]["log_loss"]
    lines = []
    for outcome in ("amplification", "ece", "class_ece"):
        own = [
            t for t in found if t.effects[outcome].high < 0 and t.effects["log_loss"].high < guard
        ]
        own.sort(key=lambda t: t.effects[outcome].mean)
        lines.append(
            f"- Lowers {HEADINGS[outcome]}, and log-loss is not worse: "
            + _listed([f"{_name(t)} {_text(outcome, t.effects[outcome], level)}" for t in own])
        )
    harm = [t for t in found if t.effects["log_loss"].low > 0 or t.effects["accuracy"].high < 0]
    harm = [t for t in harm if t.calibration in ("none", "group", "bcts")]
    harm.sort(key=lambda t: -t.effects["log_loss"].mean)
    lines.append(
        "- Costs log-loss or accuracy: "
        + _listed([f"{_name(t)} {_text('log_loss', t.effects['log_loss'], level)}" for t in harm])
    )
    return "\n".join(lines)


MOST = 6
"""Methods that are named in a line."""


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - MOST} more" if len(names) > MOST else ""
    return (", ".join(names[:MOST]) + more or "nothing is shown to") + "."


def _name(treatment: Treatment) -> str:
    after = "" if treatment.calibration == "none" else f" + {treatment.calibration}"
    return treatment.arm.replace("*", "\\*") + after


def _tables(found: Sequence[Treatment], level: dict[str, float]) -> list[str]:
    after = [t for t in found if t.arm == "ce" and t.calibration != "none"]
    losses = [t for t in found if t.arm != "ce" and t.calibration == "none"]
    both = [t for t in found if t.arm != "ce" and t.calibration == "bcts-shrunk"]
    return [
        "### After training with cross-entropy",
        _table([(t.calibration, t) for t in after], level),
        "### In training, without calibration",
        _table([(t.arm, t) for t in losses], level),
        "### In training, and then bcts with shrinkage",
        _table([(t.arm, t) for t in both], level),
    ]


def _table(rows: Sequence[tuple[str, Treatment]], level: dict[str, float]) -> str:
    lines = [
        "| method | " + " | ".join(HEADINGS[name] for name in SHOWN) + " |",
        "|---" * (1 + len(SHOWN)) + "|",
    ]
    for name, treatment in rows:
        cells = [_cell(outcome, treatment.effects[outcome], level) for outcome in SHOWN]
        lines.append("| " + " | ".join([name.replace("*", "\\*"), *cells]) + " |")
    return "\n".join(lines)


def _cell(outcome: str, own: Pooled, level: dict[str, float]) -> str:
    text = _text(outcome, own, level)
    return f"**{text}**" if own.low > 0 or own.high < 0 else text


def _text(outcome: str, own: Pooled, level: dict[str, float]) -> str:
    values = (own.mean, own.low, own.high)
    if outcome in ("log_loss", "accuracy"):
        mean, low, high = (100.0 * v for v in values)
        return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"
    mean, low, high = (percent(outcome, v, level[outcome]) for v in values)
    return f"{mean:+.0f}% [{low:+.0f}, {high:+.0f}]"
