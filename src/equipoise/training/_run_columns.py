"""Names of the columns in which a run is measured after every epoch."""

from __future__ import annotations

PARTS = ("val", "test")

CALIBRATIONS = (None, "common", "group")
"""The network's own probabilities, one temperature for all rows, one per group."""

UNCALIBRATED = ("accuracy", "pe_deterministic", "dead")
"""Metrics that no temperature changes: they have one column per part."""


def run_column(part: str, metric: str, calibration: str | None = None) -> str:
    """Return the name of the column with a metric of a part, after a calibration.

    Examples
    --------
    >>> run_column("val", "pe"), run_column("test", "ece15", "group")
    ('val_pe', 'test_group_ece15')
    >>> run_column("val", "accuracy", "group")  # as without temperatures
    'val_accuracy'
    """
    plain = calibration is None or metric in UNCALIBRATED
    return f"{part}_{metric}" if plain else f"{part}_{calibration}_{metric}"
