"""The digest of one study: its outcomes, effects with intervals, and some facts.

The page and the verdicts are made from digests, without the runs.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise._files import replace_file
from equipoise.datasets import Dataset
from equipoise.metrics import hypervolume
from equipoise.paper._study._design import Claim, Study, claims, registered
from equipoise.paper._study._effects import chosen_effect, effect, mean_of, transformed
from equipoise.paper._study._outcomes import OUTCOMES, outcomes
from equipoise.paper._study._predictions import Predictions, predictions
from equipoise.sweep import PartFolder, Work, encode, versions

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

FORMAT = 1
"""Raised when the same runs give another digest."""

BOOTSTRAPPED = ("amplification", "ece", "class_ece", "log_loss", "brier", "accuracy")
FLOOR_DRAWS = 400
"""Draws of labels for the outcomes of a model that is right."""
CORNER = 1.5
"""Bound of the hypervolume, in means of cross-entropy."""
Z = 1.959963984540054


@dataclasses.dataclass(frozen=True)
class StudyDigest:
    """Results of one study.

    Attributes
    ----------
    outcomes
        A row per repeat, arm and calibration: its outcomes on the pooled out-of-fold rows.
    effects
        A row per arm, calibration and outcome: the mean difference from plain cross-entropy, with
        the standard error and 95% interval of the bootstrap.
    facts
        The study, the data, the effect of each claim, epochs, floors, versions.
    """

    outcomes: pd.DataFrame
    effects: pd.DataFrame
    facts: dict[str, Any]

    @property
    def study(self) -> dict[str, Any]:
        """The study as plain values."""
        return self.facts["study"]  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """Name of the study."""
        return f"{self.study['dataset']}-{self.study['network']}"

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the digest as two Parquet files and one JSON file."""
        import pyarrow as pa

        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for name in ("outcomes", "effects"):
            table = pa.Table.from_pandas(getattr(self, name), preserve_index=False)
            replace_file(path / f"{name}.parquet", encode(table, name))
        text = json.dumps(self.facts, indent=1, sort_keys=True)
        replace_file(path / "facts.json", text.encode() + b"\n")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> StudyDigest:
        """Read what `save` wrote."""
        import pandas as pd

        path = Path(folder)
        try:
            found, effects = (
                pd.read_parquet(path / f"{name}.parquet") for name in ("outcomes", "effects")
            )
            facts = json.loads((path / "facts.json").read_text("utf-8"))
            facts["study"]["dataset"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"the results in {path} are damaged ({type(error).__name__}: {error}); remove that "
                "folder, and give the command again: finished runs are not run again"
            ) from None
        return cls(found, effects, facts)


def study_digest(
    study: Study,
    store: PartFolder,
    work: Sequence[Work],
    data: Dataset,
    advance: Callable[[int], None] = lambda _: None,
) -> StudyDigest:
    """Read a finished study; `advance` is called with each split or repeat that is done."""
    keys = [w.part.key for w in work]
    found = predictions(study, store, keys, data, advance)
    n, resamples = len(found.y), registered()["design"]["resamples"]
    drawn = np.random.default_rng(study.seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    one = _measured(found, np.ones((1, n)), advance, squared=True)
    many = _measured(found, drawn.astype(np.float64), advance, squared=False)
    made = [versions(store.path(key)) for key in keys]
    facts = _facts(study, found, one, many)
    facts["format"] = FORMAT
    facts["data"] = {"fingerprint": store.about["data"], "rows": n}
    facts["versions"] = {k: " and ".join(sorted({m.get(k, "?") for m in made})) for k in made[0]}
    return StudyDigest(_outcome_frame(study, one), _effect_frame(study, one, many), facts)


Values = dict[str, Floats]
"""Outcomes by name, each (resample, repeat, arm)."""


@dataclasses.dataclass(frozen=True)
class _Measured:
    """Outcomes by calibration, and without calibration on each half of the folds."""

    whole: dict[str, Values]
    halves: tuple[Values, Values]


def _measured(
    found: Predictions,
    weight: Floats,
    advance: Callable[[int], None],
    *,
    squared: bool,
) -> _Measured:
    """Measure resamples of the rows, (resample, row) counts."""
    bins = registered()["design"]["bins"]
    whole: list[dict[str, Values]] = []
    halves: list[list[Values]] = []
    for repeat, second in enumerate(found.half):
        whole.append(
            {
                way: outcomes(p[repeat], found.y, found.group, weight, bins, squared=squared)
                for way, p in found.prob.items()
            }
        )
        halves.append(
            [
                outcomes(
                    found.prob["none"][repeat][:, own],
                    found.y[own],
                    found.group[own],
                    weight[:, own],
                    bins,
                    squared=False,
                )
                for own in (~second, second)
            ]
        )
        advance(1)
    return _Measured(
        {way: _together([each[way] for each in whole]) for way in found.prob},
        (_together([each[0] for each in halves]), _together([each[1] for each in halves])),
    )


def _together(repeats: Sequence[Values]) -> Values:
    return {name: np.stack([own[name] for own in repeats], axis=1) for name in repeats[0]}


def claim_effects(study: Study, claim: Claim, found: _Measured) -> dict[str, Floats]:
    """Return the effects of a claim by outcome, (resample,)."""
    names = (claim.outcome, *claim.also)
    if "chosen_by" not in claim.treated:
        return {name: effect(claim, name, study.arms, found.whole) for name in names}
    slack = registered()["design"]["slack"]
    return {
        name: np.mean(
            [
                chosen_effect(
                    study.arms,
                    choosing,
                    judging,
                    claim.treated["chosen_by"],
                    name,
                    slack,
                    claim.control,
                )
                for choosing, judging in (found.halves, found.halves[::-1])
            ],
            axis=0,
        )
        for name in names
    }


def _outcome_frame(study: Study, found: _Measured) -> pd.DataFrame:
    import pandas as pd

    frames = []
    for way, values in found.whole.items():
        repeat, arm = np.indices((study.repeats, len(study.arms)))
        names = np.array([a.name for a in study.arms])
        columns: dict[str, Any] = {
            "repeat": repeat.ravel().astype(np.int16),
            "arm": names[arm.ravel()],
            "calibration": way,
        }
        columns |= {name: values[name][0].ravel().astype(np.float32) for name in OUTCOMES}
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def _effect_frame(study: Study, one: _Measured, many: _Measured) -> pd.DataFrame:
    """Return each arm's mean difference from plain cross-entropy, with bootstrap intervals."""
    import pandas as pd

    plain = {"loss": ["ce"]}
    rows = []
    for way, name in itertools.product(one.whole, BOOTSTRAPPED):
        change = []
        for found in (one, many):
            values = transformed(name, found.whole[way][name])
            base = transformed(name, found.whole["none"][name])
            control = mean_of(base, study.arms, plain)[..., None]
            change.append((values - control).mean(axis=1))  # (resample, arm)
        error = change[1].std(axis=0, ddof=1)
        for arm, mean, spread in zip(study.arms, change[0][0], error, strict=True):
            interval = {"low": mean - Z * spread, "high": mean + Z * spread}
            about = {"arm": arm.name, "calibration": way, "outcome": name}
            rows.append(about | {"effect": mean, "error": spread} | interval)
    return pd.DataFrame(rows)


def _facts(study: Study, found: Predictions, one: _Measured, many: _Measured) -> dict[str, Any]:
    by_claim: dict[str, Any] = {}
    for claim in claims():
        point, spread = (claim_effects(study, claim, both) for both in (one, many))
        by_claim[claim.name] = {
            name: {
                "effect": float(point[name][0]),
                "error": float(spread[name].std(ddof=1)),
            }
            for name in point
        }
    cap = study.max_epochs
    names = [arm.name for arm in study.arms]
    return {
        "study": study.to_dict(),
        "claims": by_claim,
        "floors": _floors(study, found),
        "volumes": _volumes(study, one),
        # runs that were still at their best when the epochs ended
        "at_the_cap": float(((found.epoch >= cap - 2) & (found.n_epochs == cap)).mean()),
        "epochs": dict(zip(names, np.median(found.epoch, axis=0).tolist(), strict=True)),
        "diverged": int((found.epoch == 0).sum()),
        "dead": dict(zip(names, (found.dead > 0.5).mean(axis=0).tolist(), strict=True)),
        "smallest_group": int(np.bincount(found.group, minlength=2).min()),
        "rates": [float(found.y[found.group == g].mean()) for g in (0, 1)],
    }


def _floors(study: Study, found: Predictions) -> dict[str, float]:
    """Return the mean outcomes of a model that is right, on as many rows.

    Labels are drawn from the probabilities of cross-entropy with a temperature and a bias per
    group; the same probabilities are then measured against them.
    """
    rng = np.random.default_rng(study.seed)
    prob = found.prob["bcts-shrunk"][0, :1]
    weight = np.ones((1, len(found.y)))
    values = []
    for _ in range(FLOOR_DRAWS):
        y = (rng.random(len(found.y)) < prob[0]).astype(np.int64)
        own = outcomes(prob, y, found.group, weight, squared=False)
        values.append([own[name][0, 0] for name in ("amplification", "ece", "class_ece")])
    mean = np.mean(values, axis=0)
    return dict(zip(("amplification", "ece", "class_ece"), mean.tolist(), strict=True))


def _volumes(study: Study, one: _Measured) -> dict[str, list[float]]:
    """Return for each loss its hypervolume and that of as many runs of cross-entropy.

    In units of the box up to `CORNER` times cross-entropy's means; averaged over the repeats.
    """
    values = one.whole["none"]
    points = np.stack([values["amplification"][0], values["ece"][0]], axis=-1)  # repeat, arm, 2
    losses: dict[str, list[int]] = {}
    for place, arm in enumerate(study.arms):
        if arm.rho is not None or arm.loss == "ce":
            losses.setdefault(arm.loss, []).append(place)
    found = {}
    for loss, places in losses.items():
        pairs = []
        for own in points:
            unit = own[losses["ce"]].mean(axis=0)
            control = losses["ce"][: len(places)]
            pairs.append(
                [
                    hypervolume(own[p] / unit, (CORNER, CORNER)) / CORNER**2
                    for p in (places, control)
                ]
            )
        found[loss] = [float(v) for v in np.mean(pairs, axis=0)]
    return found
