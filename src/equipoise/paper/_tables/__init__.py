"""Tables 2 to 8 of the paper, each value of ours beside the published one, in two readings."""

from equipoise.paper._tables._optimised import (
    BASELINES,
    EXPERIMENTS,
    Baseline,
    all_published,
    all_validated,
    best_published,
    best_validated,
    compare,
    optimised,
    published_change,
    validated,
)
from equipoise.paper._tables._scaling import (
    scaled,
    scaling_change,
    temperature_scaling,
    temperature_scaling_validated,
)
from equipoise.paper._tables._statistics import statistics
from equipoise.paper._tables._table import SPAN, Table
from equipoise.paper._tables._volumes import published_volume, validated_volumes, volumes

__all__ = [
    "BASELINES",
    "EXPERIMENTS",
    "SPAN",
    "Baseline",
    "Table",
    "all_published",
    "all_validated",
    "best_published",
    "best_validated",
    "compare",
    "optimised",
    "published_change",
    "published_volume",
    "scaled",
    "scaling_change",
    "statistics",
    "temperature_scaling",
    "temperature_scaling_validated",
    "validated",
    "validated_volumes",
    "volumes",
]
