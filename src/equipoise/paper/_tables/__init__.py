"""Tables 2 to 8 of the paper, each value of ours beside the published one, in two readings."""

from equipoise.paper._tables._optimised import (
    BASELINES,
    all_published,
    all_validated,
    control_change,
    optimised,
    published_change,
    validated,
)
from equipoise.paper._tables._scaling import temperature_scaling, temperature_scaling_validated
from equipoise.paper._tables._statistics import statistics
from equipoise.paper._tables._volumes import volumes

__all__ = [
    "BASELINES",
    "all_published",
    "all_validated",
    "control_change",
    "optimised",
    "published_change",
    "statistics",
    "temperature_scaling",
    "temperature_scaling_validated",
    "validated",
    "volumes",
]
