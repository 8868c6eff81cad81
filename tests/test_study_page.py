"""The page of the decisive study: its numbers recomputed from the committed outcomes by pandas."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from equipoise.paper import saved_studies, study_folder, write_page
from equipoise.paper._study._design import claims, studies
from equipoise.paper._study._page import claim_table, published_values
from equipoise.paper._study._summary import of_network, treatments, winners

RESULTS = Path(__file__).parent.parent / "paper" / "results"
LINEAR = [
    name
    for name, study in studies().items()
    if study.network == "linear" and (study_folder(RESULTS) / name).exists()
]


@pytest.fixture(scope="module")
def frames():
    """The outcomes of the linear networks, by dataset, with losses and strengths as columns."""
    found = {}
    for name in LINEAR:
        frame = pd.read_parquet(study_folder(RESULTS) / name / "outcomes.parquet")
        for outcome in frame.columns.difference(["repeat", "arm", "calibration"]):
            frame[outcome] = frame[outcome].astype(float)
        for outcome in ("ece", "class_ece"):
            frame[outcome] = np.log(frame[outcome])
        parts = frame["arm"].str.split(" ")
        frame["loss"] = parts.str[0]
        frame["lam"] = pd.to_numeric(parts.str[1], errors="coerce")
        frame["grouped"] = ~frame["arm"].str.endswith("ungrouped") & (frame["loss"] != "ce")
        found[name] = frame
    return found


@pytest.fixture(scope="module")
def digests():
    return saved_studies(study_folder(RESULTS))


def plain_effect(frame, claim, outcome):
    sides = []
    for side in (claim.treated, claim.control):
        own = frame[frame["calibration"] == side.get("calibration", "none")]
        own = own[own["loss"].isin(side["loss"])]
        if "grouped" in side:
            own = own[own["grouped"] == side["grouped"]]
        if "lam" in side:
            own = own[own["lam"] == side["lam"]]
        sides.append(own.groupby("loss")[outcome].mean().mean())
    return sides[0] - sides[1]


def test_the_page_says_what_is_missing(digests):
    shown = RESULTS.joinpath("README.md").read_text("utf-8")
    missing = [name for name in studies() if name not in {d.name for d in digests}]
    assert ("Not run yet" in shown) == bool(missing)
    for name in missing:
        assert name in shown
    everything = [s for s in studies().values() if s.network == "linear"]
    assert ("interim" in shown) == (len(LINEAR) < len(everything))


@pytest.mark.parametrize(
    "claim", [c for c in claims() if "loss" in c.treated], ids=lambda c: c.name
)
def test_the_effects_of_the_page_follow_from_the_outcomes(claim, frames):
    """Nine claims, and of each the mean and its interval."""
    shown = RESULTS.joinpath("README.md").read_text("utf-8")
    (line,) = [row for row in shown.splitlines() if row.startswith(f"| {claim.text} |")]
    numbers = re.findall(r"([+-]\d\.\d{3}) \[([+-]\d\.\d{3}), ([+-]\d\.\d{3})\]", line)
    for outcome, text in zip((claim.outcome, *claim.also), numbers, strict=True):
        effects = [plain_effect(frame, claim, outcome) for frame in frames.values()]
        test = stats.ttest_1samp(effects, 0.0)
        low, high = test.confidence_interval(0.95)
        assert [float(v) for v in text] == pytest.approx([np.mean(effects), low, high], abs=6e-4)


def test_the_p_values_of_the_page_are_holm_adjusted(frames, digests):
    table = claim_table(digests)
    column = table.header.index("p (Holm)")
    p = {}
    for claim in claims():
        if "loss" not in claim.treated:
            effects = [
                d.facts["claims"][claim.name][claim.outcome]["effect"]
                for d in of_network(digests, "linear")
            ]
            p[claim.name] = stats.ttest_1samp(effects, 0.0).pvalue
            continue
        each = []
        for outcome in (claim.outcome, *claim.also):
            effects = [plain_effect(frame, claim, outcome) for frame in frames.values()]
            null = 0.002 if outcome == "log_loss" else 0.0
            towards = np.mean(effects) < null
            value = stats.ttest_1samp(effects, null).pvalue
            each.append(value if towards or not claim.also else 1.0)
        p[claim.name] = max(each)
    ordered, largest, adjusted = sorted(p, key=p.get), 0.0, {}
    for rank, name in enumerate(ordered):
        largest = max(largest, min(1.0, (len(p) - rank) * p[name]))
        adjusted[name] = largest
    for claim, row in zip(claims(), table.rows, strict=True):
        if row[column] == "<0.001":
            assert adjusted[claim.name] < 0.001
        else:
            assert float(row[column]) == pytest.approx(adjusted[claim.name], abs=2e-3)


def test_the_table_of_noise_is_that_of_the_outcomes(frames):
    shown = RESULTS.joinpath("README.md").read_text("utf-8")
    for name, frame in frames.items():
        dataset = name.removesuffix("-linear")
        (line,) = [row for row in shown.splitlines() if row.startswith(f"| {dataset} |")][:1]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        plain = frame[(frame["loss"] == "ce") & (frame["calibration"] == "none")]
        assert float(cells[3]) == pytest.approx(plain["amplification"].mean(), abs=6e-4)
        assert float(cells[5]) == pytest.approx(np.exp(plain["ece"]).mean(), abs=6e-4)


def test_the_winner_of_a_dataset_is_that_of_plain_loops(digests, frames):
    for digest in of_network(digests, "linear"):
        frame = frames[digest.name]
        own = frame[(frame["calibration"] == "none") & (frame["grouped"] | (frame["loss"] == "ce"))]
        best, changed, repeats = winners(digest, "ece")
        table = {
            (r, loss): some["ece"].mean() for (r, loss), some in own.groupby(["repeat", "loss"])
        }
        losses = sorted(set(own["loss"]))

        def winner(kept, table=table, losses=losses):
            return min(losses, key=lambda t: np.mean([table[r, t] for r in kept]))

        every = range(repeats)
        assert best == winner(every)
        assert changed == sum(winner([r for r in every if r != out]) != best for out in every)


def test_the_methods_are_differences_from_plain_cross_entropy(frames, digests):
    own = of_network(digests, "linear")
    found = {(t.arm, t.calibration): t for t in treatments(own)}
    for arm, way, outcome in (
        ("mdca 3", "none", "ece"),
        ("dca 10", "bcts-shrunk", "amplification"),
        ("ce", "bcts", "log_loss"),
    ):
        effects = []
        for frame in frames.values():
            plain = frame[(frame["loss"] == "ce") & (frame["calibration"] == "none")]
            name = frame["arm"].str.replace(r" #\d$", "", regex=True)
            new = frame[(name == arm) & (frame["calibration"] == way)]
            effects.append(new[outcome].mean() - plain[outcome].mean())
        assert found[arm, way].effects[outcome].mean == pytest.approx(np.mean(effects), abs=1e-5)


def test_the_published_values_are_means_of_the_papers_tables():
    values = published_values()
    fair = [97.94, 86.10, 87.66, 92.53, 82.12, 96.95, 97.48]
    assert values["losses-fairness"] == pytest.approx(-sum(fair) / 7)
    assert values["calibration-hurts"] == pytest.approx(591.51)
    assert values["scaling-calibration"] == pytest.approx(
        -(0.88 + 0.25 + 0.80 + 2.29 + 0.49 + 0.33 + 0.61) / 7
    )


@pytest.mark.slow
def test_the_committed_page_is_made_from_the_committed_results(tmp_path, digests):
    for path in RESULTS.iterdir():
        (tmp_path / path.name).symlink_to(path)
    for name in ("README.md", "METHODS.md", "claims.svg"):
        (tmp_path / name).unlink()
    shown = RESULTS.joinpath("README.md").read_text("utf-8")
    command = re.search(r"^    (equipoise reproduce .*)$", shown, re.MULTILINE)[1].split()
    write_page(tmp_path, digests, command)
    assert (tmp_path / "README.md").read_text("utf-8") == shown
    for name in ("METHODS.md",):
        assert (tmp_path / name).read_text("utf-8") == (RESULTS / name).read_text("utf-8")
