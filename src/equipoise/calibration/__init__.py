"""Calibration after training: one calibrator per group around scores or any classifier."""

from equipoise.calibration._classifier import GroupCalibratedClassifier
from equipoise.calibration._group_calibrator import (
    BoundWarning,
    CalibrationWarning,
    GroupCalibrator,
    SmallGroupWarning,
    UnseenGroupError,
)
from equipoise.calibration._methods import METHODS
from equipoise.calibration._out_of_fold import stratified_folds
from equipoise.calibration._paper_temperatures import paper_temperatures
from equipoise.calibration._predictions_file import Applied, FileCalibration
from equipoise.calibration._scores import log_odds, scores_of, softmax
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
    "GroupCalibrator",
    "GroupTemperatureScaling",
    "Problem",
    "SmallGroupWarning",
    "TemperatureScaling",
    "UnseenGroupError",
    "fit_temperatures",
    "log_odds",
    "paper_temperatures",
    "scores_of",
    "softmax",
    "solve",
    "stratified_folds",
]
