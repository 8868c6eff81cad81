"""The runs of one split of the decisive study: the unit of work, and one file of its folder."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from equipoise.datasets import Dataset, Part, Preprocessor, Split
from equipoise.paper._snippet import TECHNIQUES
from equipoise.paper._study._design import Study
from equipoise.sweep import PartFolder, Step, Work, fingerprint, meanings
from equipoise.training import Loss, train_to_best

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
"""Raised when the same study gives other numbers or other parts."""


@dataclasses.dataclass(frozen=True)
class StudyPart:
    """All arms on one split."""

    study: Study
    split: int
    data: str

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.study.arms)

    @property
    def steps(self) -> int:
        """Number of steps that progress counts: finished runs."""
        return self.runs

    @property
    def title(self) -> str:
        """The part in a few words."""
        return f"{self.study.name}, split {self.split}"

    @property
    def key(self) -> str:
        """A hash of all that the numbers depend on."""
        # the number of repeats is not among it: more repeats are more parts
        about = {k: v for k, v in self.study.to_dict().items() if k != "repeats"}
        what = {"format": FORMAT, "study": about, "split": self.split, "data": self.data}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]

    def table(
        self, data: Dataset, losses: Mapping[str, Loss], step: Step | Literal[False] = False
    ) -> pa.Table:
        """Return a row for each run and validation or test row: the logit of class 1.

        The logit is the second output minus the first. Each row repeats the run's epochs.
        """
        import pyarrow as pa

        study, split = self.study, prepared_split(self.study, self.split, data)
        best = train_to_best(
            split,
            study.configs(self.split),
            max_epochs=study.max_epochs,
            patience=study.patience,
            batch_size=study.batch_size,
            hidden_layer_sizes=study.hidden_layer_sizes,
            output_relu=study.network == "relu",
            split_seed=study.seed + self.split,
            losses=losses,
            n_classes=2,
            step=(lambda: step(0, self.steps)) if step else None,
        )
        rows = np.concatenate([split.val.rows, split.test.rows])
        held_out = np.repeat([False, True], [len(split.val.rows), len(split.test.rows)])
        logits = np.concatenate(
            [z[..., 1] - z[..., 0] for z in (best.logits["val"], best.logits["test"])], axis=1
        )
        runs = np.repeat(np.arange(self.runs), len(rows))
        return pa.table(
            {
                "arm": pa.array(runs, pa.int16()),
                "epoch": pa.array(best.epoch[runs], pa.int16()),
                "n_epochs": pa.array(best.n_epochs[runs], pa.int16()),
                "test": np.tile(held_out, self.runs),
                "row": pa.array(np.tile(rows, self.runs), pa.int32()),
                "logit": pa.array(logits.ravel().astype(np.float32)),
            }
        )


def prepared_split(study: Study, split: int, data: Dataset) -> Split:
    """Return the rows of a split, imputed and standardised on its training rows."""
    cuts = study.cut(split, data)
    preprocessor = Preprocessor.fit(data.X[cuts[0]], data.feature_names)
    train, val, test = (
        Part(preprocessor.transform(data.X[own]), data.y[own], data.group[own], own) for own in cuts
    )
    return Split(train, val, test, preprocessor)


def plan_study(
    study: Study, folder: str | os.PathLike[str], data: Dataset
) -> tuple[PartFolder, list[Work]]:
    """Open the folder of a study, and return all its parts."""
    mark = fingerprint(data)
    about: dict[str, Any] = {
        "study": study.to_dict(),
        "data": mark,
        "format": FORMAT,
        "losses": meanings([arm.loss for arm in study.arms], TECHNIQUES),
    }
    store = PartFolder(folder, "study", about, study.dataset)
    return store, [Work(store, StudyPart(study, s, mark), data) for s in range(study.splits)]
