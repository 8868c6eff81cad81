"""Training: group-wise calibration losses, the stacked engine, and an estimator."""

from equipoise.training._engine import CHUNK, Config, StackResult, epochs_of, train_stack
from equipoise.training._kernel_sum import laplacian_form
from equipoise.training._losses import LOSSES, Batch, GroupwiseLoss, Loss, mmce, mmce_w, safe_sqrt
from equipoise.training._mlp import GroupwiseMLPClassifier, checked_rows
from equipoise.training._progress import Bar

__all__ = [
    "CHUNK",
    "LOSSES",
    "Bar",
    "Batch",
    "Config",
    "GroupwiseLoss",
    "GroupwiseMLPClassifier",
    "Loss",
    "StackResult",
    "checked_rows",
    "epochs_of",
    "laplacian_form",
    "mmce",
    "mmce_w",
    "safe_sqrt",
    "train_stack",
]
