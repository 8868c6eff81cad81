"""Calibration after training: one calibrator per group around scores or any classifier."""

from equipoise.calibration._classifier import GroupCalibratedClassifier
from equipoise.calibration._export import ExportError
from equipoise.calibration._export_onnx import calibrators_to_onnx
from equipoise.calibration._export_sql import SqlExport
from equipoise.calibration._exporting import check_export
from equipoise.calibration._file_apply import Applied
from equipoise.calibration._file_measures import Gain, Measured
from equipoise.calibration._group_calibrator import GroupCalibrator
from equipoise.calibration._methods import METHODS
from equipoise.calibration._onnx_graph import OnnxGraph, run_onnx, write_onnx
from equipoise.calibration._paper_temperatures import paper_temperatures
from equipoise.calibration._pooling import Shrinkage
from equipoise.calibration._predictions_file import FileCalibration
from equipoise.calibration._scores import softmax
from equipoise.calibration._selection import Selection
from equipoise.calibration._temperature_scaling import (
    GroupTemperatureScaling,
    TemperatureScaling,
    fit_bias_corrected,
    fit_temperatures,
)
from equipoise.calibration._temperature_solver import Problem, solve
from equipoise.calibration._warnings import (
    BoundWarning,
    CalibrationWarning,
    ClippedWarning,
    ConvergenceWarning,
    NoGroupsWarning,
    SmallGroupWarning,
    UnseenGroupError,
)

__all__ = [
    "METHODS",
    "Applied",
    "BoundWarning",
    "CalibrationWarning",
    "ClippedWarning",
    "ConvergenceWarning",
    "ExportError",
    "FileCalibration",
    "Gain",
    "GroupCalibratedClassifier",
    "GroupCalibrator",
    "GroupTemperatureScaling",
    "Measured",
    "NoGroupsWarning",
    "OnnxGraph",
    "Problem",
    "Selection",
    "Shrinkage",
    "SmallGroupWarning",
    "SqlExport",
    "TemperatureScaling",
    "UnseenGroupError",
    "calibrators_to_onnx",
    "check_export",
    "fit_bias_corrected",
    "fit_temperatures",
    "paper_temperatures",
    "run_onnx",
    "softmax",
    "solve",
    "write_onnx",
]
