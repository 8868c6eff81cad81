"""Names that need no torch: the losses, and the metrics that training may watch."""

LOSS_NAMES = ("ce", "ls", "fl", "flsd", "dca", "mdca", "mmce", "mmce-w")
"""The keys of `equipoise.training.LOSSES`."""

STOPPING = {"log_loss": 1, "ece": 1, "pe": 1, "accuracy": -1}
"""What early stopping may watch, and whether smaller (1) or larger (-1) is better."""
