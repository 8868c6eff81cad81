"""Training: group-wise calibration losses, the stacked engine, and an estimator.

Names of losses and columns need no torch; everything else is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from equipoise._door import opened_late
from equipoise.training._names import LOSS_NAMES, STOPPING
from equipoise.training._run_columns import CALIBRATIONS, PARTS, run_column

if TYPE_CHECKING:
    from equipoise.training._early_stopping import BestRuns, best_epoch, train_to_best
    from equipoise.training._engine import (
        CHUNK,
        Config,
        StackResult,
        epochs_of,
        long_frame,
        train_stack,
    )
    from equipoise.training._estimator import GroupEstimator
    from equipoise.training._kernel_sum import laplacian_form
    from equipoise.training._losses import (
        LOSSES,
        Batch,
        GroupwiseLoss,
        Loss,
        mmce,
        mmce_w,
        safe_sqrt,
    )
    from equipoise.training._mlp import GroupwiseMLPClassifier
    from equipoise.training._progress import Bar
    from equipoise.training._rho import resolve_rho
    from equipoise.training._rows import (
        FitRows,
        checked_rows,
        group_shares,
        prepared,
        reference_place,
    )
    from equipoise.training._scaling import SCALINGS, fit_scaling, quiet_calibration, scaled
    from equipoise.training._threads import run_in_threads, torch_threads

__all__ = [
    "CALIBRATIONS",
    "CHUNK",
    "LOSSES",
    "LOSS_NAMES",
    "PARTS",
    "SCALINGS",
    "STOPPING",
    "Bar",
    "Batch",
    "BestRuns",
    "Config",
    "FitRows",
    "GroupEstimator",
    "GroupwiseLoss",
    "GroupwiseMLPClassifier",
    "Loss",
    "StackResult",
    "best_epoch",
    "checked_rows",
    "epochs_of",
    "fit_scaling",
    "group_shares",
    "laplacian_form",
    "long_frame",
    "mmce",
    "mmce_w",
    "prepared",
    "quiet_calibration",
    "reference_place",
    "resolve_rho",
    "run_column",
    "run_in_threads",
    "safe_sqrt",
    "scaled",
    "torch_threads",
    "train_stack",
    "train_to_best",
]

__getattr__, __dir__ = opened_late(__name__, __file__, extra="train")
