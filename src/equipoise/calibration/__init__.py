"""Calibration after training: one calibrator per group around scores or any classifier."""

from equipoise.calibration._classifier import GroupCalibratedClassifier
from equipoise.calibration._group_calibrator import (
    BoundWarning,
    CalibrationWarning,
    SmallGroupWarning,
    UnseenGroupError,
)
from equipoise.calibration._methods import METHODS
from equipoise.calibration._paper_temperatures import paper_temperatures
from equipoise.calibration._predictions_file import Applied, FileCalibration
from equipoise.calibration._scores import softmax
from equipoise.calibration._temperature_scaling import (
    GroupTemperatureScaling,
    TemperatureScaling,
    fit_temperatures,
)
from equipoise.calibration._temperature_solver import Problem, solve

__all__ = [
    "METHODS",
    "Applied",
    "BoundWarning",
    "CalibrationWarning",
    "FileCalibration",
    "GroupCalibratedClassifier",
    "GroupTemperatureScaling",
    "Problem",
    "SmallGroupWarning",
    "TemperatureScaling",
    "UnseenGroupError",
    "fit_temperatures",
    "paper_temperatures",
    "softmax",
    "solve",
]
