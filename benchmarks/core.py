"""Speed of the core beside other libraries: one run, one thread, ratios.

    make bench            all of it, about three minutes
    python benchmarks/core.py --quick    a tenth of the rows, to see that it runs

Every contestant gets the same data in the type and layout it is fastest with, is run in turn with
the others, and counts by its fastest run. Results are checked against each other or against a plain
float64 computation; the error stands beside the time. Written to benchmarks/results/core.json.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import tracemalloc  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from netcal.metrics import ECE  # noqa: E402
from netcal.regularization import MMCEPenalty  # noqa: E402
from netcal.scaling import TemperatureScaling as NetcalTemperature  # noqa: E402
from report import Report, race  # noqa: E402
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.frozen import FrozenEstimator  # noqa: E402
from torchmetrics.functional import calibration_error  # noqa: E402

from equipoise import AuditTable, GroupTemperatureScaling, TemperatureScaling  # noqa: E402
from equipoise.metrics import expected_calibration_error  # noqa: E402
from equipoise.training import Batch, mmce, mmce_w  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "core.json"


def plain_ece(y: np.ndarray, prob: np.ndarray, n_bins: int = 15) -> float:
    """Return the ECE in float64 by NumPy, one bin after the other."""
    edges = np.arange(n_bins + 1) / n_bins
    confidence, correct = prob.max(axis=1).astype(np.float64), prob.argmax(axis=1) == y
    bins = np.maximum(np.searchsorted(edges, confidence, side="left") - 1, 0)
    return float(
        sum(abs((correct[bins == b] - confidence[bins == b]).sum()) for b in range(n_bins)) / len(y)
    )


def calibration_errors(report: Report, rows: int, classes: int) -> None:
    """Time ECE and the whole table."""
    rng = np.random.default_rng(classes)
    logits = rng.normal(scale=1.5, size=(rows, classes)).astype(np.float32)
    y = (logits / 1.3 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    prob = np.exp(logits.astype(np.float64))
    prob /= prob.sum(axis=1, keepdims=True)
    del logits
    single = torch.from_numpy(prob.astype(np.float32))
    double, target = torch.from_numpy(prob), torch.from_numpy(y)
    group = rng.integers(0, 6, rows)
    options: dict[str, Any] = {"task": "multiclass", "num_classes": classes, "n_bins": 15}
    found = race(
        {
            "equipoise ECE": lambda: expected_calibration_error(y, prob),
            "torchmetrics ECE, float32": lambda: float(
                calibration_error(single, target, **options)
            ),
            "torchmetrics ECE, float64": lambda: float(
                calibration_error(double, target, **options)
            ),
            "netcal ECE": lambda: float(ECE(15).measure(prob, y)),
            "equipoise, whole table": lambda: AuditTable.from_arrays(y, prob),
            "equipoise, whole table, 6 groups": lambda: AuditTable.from_arrays(
                y, prob, sensitive_features=group
            ),
        },
        rounds=3,
    )
    truth = plain_ece(y, prob)
    times = {name: seconds for name, (seconds, _) in found.items()}
    notes = {
        name: f"error {abs(value - truth):.1e}"
        for name, (_, value) in found.items()
        if "ECE" in name
    }
    tracemalloc.start()
    AuditTable.from_arrays(y, prob, sensitive_features=group)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    notes["equipoise, whole table, 6 groups"] = f"{peak:.0f} MB beyond the input"
    report.section(f"{rows:,} rows, K = {classes}", times, notes, ours="equipoise ECE")
    ours = times["equipoise ECE"]
    report.check(f"ECE, K = {classes}: netcal / ours", times["netcal ECE"] / ours, 4)
    fastest = min(seconds for name, seconds in times.items() if "torchmetrics" in name)
    report.check(f"ECE, K = {classes}: torchmetrics / ours", fastest / ours, 1)


class Scores(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose scores are its input, as scikit-learn's calibration wants one."""

    def __init__(self, classes: int = 2) -> None:
        self.classes = classes
        self.classes_ = np.arange(classes)

    def fit(self, X: Any, y: Any) -> "Scores":  # noqa: ARG002
        """Do nothing."""
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Return the scores as they came."""
        return X if self.classes > 2 else X[:, 1] - X[:, 0]

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the class of the largest score."""
        return X.argmax(axis=1)


def mean_nll(logits: np.ndarray, y: np.ndarray, temperature: float) -> float:
    """Return the mean cross entropy in float64."""
    z = logits / temperature
    z -= z.max(axis=1, keepdims=True)
    return float((np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]).mean())


def temperatures(report: Report, rows: int, classes: int) -> None:
    """Time the exact temperature, for one group and a hundred."""
    rng = np.random.default_rng(classes)
    logits = rng.normal(scale=2.0, size=(rows, classes))
    y = (logits / 1.7 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    prob = np.exp(logits - logits.max(axis=1, keepdims=True))
    prob /= prob.sum(axis=1, keepdims=True)
    netcal_input = prob if classes > 2 else np.ascontiguousarray(prob[:, 1])
    one, hundred = np.zeros(rows, np.int64), rng.integers(0, 100, rows)

    def netcal() -> float:
        scaling = NetcalTemperature()
        scaling.fit(netcal_input, y)
        return 1.0 / float(np.ravel(scaling.temperature)[0])

    def sklearn() -> float:
        frozen = FrozenEstimator(Scores(classes))
        fitted = CalibratedClassifierCV(frozen, method="temperature").fit(logits, y)
        beta = float(fitted.calibrated_classifiers_[0].calibrators[0].beta_)
        # it takes the decision function d of two classes as the logits (-d, d)
        return 1.0 / beta if classes > 2 else 0.5 / beta

    found = race(
        {
            "equipoise": lambda: TemperatureScaling().fit(logits, y).temperature_,
            "netcal": netcal,
            "scikit-learn": sklearn,
            "equipoise, groups: 1": lambda: (
                GroupTemperatureScaling().fit(logits, y, sensitive_features=one).temperature_
            ),
            "equipoise, groups: 100": lambda: (
                GroupTemperatureScaling().fit(logits, y, sensitive_features=hundred).temperature_
            ),
        },
        rounds=4,
    )
    best = mean_nll(logits, y, found["equipoise"][1])
    notes = {}
    for name, (_, value) in found.items():
        excess = mean_nll(logits, y, value) - best
        notes[name] = f"T = {value:.6f}, NLL above ours {excess:+.1e}"
        if excess < -1e-6:
            raise AssertionError(f"{name} found a better optimum than ours: {notes[name]}")
    times = {name: seconds for name, (seconds, _) in found.items()}
    report.section(f"Temperature, {rows:,} logits, K = {classes}", times, notes)
    ours = times["equipoise"]
    report.check(f"Temperature, K = {classes}: netcal / ours", times["netcal"] / ours, 10)
    report.check(
        f"Temperature, K = {classes}: scikit-learn / ours", times["scikit-learn"] / ours, 20
    )
    groups = times["equipoise, groups: 100"] / times["equipoise, groups: 1"]
    report.check(f"Temperature, K = {classes}: 100 groups / 1", groups, 2.5, most=True)


def kernels(report: Report, rows: int) -> None:
    """Time MMCE and MMCE-W forward and backward."""
    torch.manual_seed(0)
    y = torch.randint(0, 10, (rows,))
    logits = torch.randn(rows, 10) + 2.0 * torch.nn.functional.one_hot(y, 10)
    logits.requires_grad_()
    penalty = MMCEPenalty()

    def plain() -> torch.Tensor:
        confidence, top = logits.softmax(-1).max(-1)
        v = ((top == y).float() - confidence) / rows
        kernel = torch.exp((confidence[:, None] - confidence).abs() / -0.4)
        return (v @ (kernel @ v)).sqrt()

    def both_ways(loss: Callable[[], torch.Tensor]) -> Callable[[], float]:
        def run() -> float:
            logits.grad = None
            value = loss()
            value.backward()
            return value.item()

        return run

    losses = {
        "equipoise MMCE": lambda: mmce(Batch.of(logits, y)),
        "MMCE, n x n": plain,
        "equipoise MMCE-W": lambda: mmce_w(Batch.of(logits, y)),
        "netcal MMCEPenalty (MMCE-W)": lambda: penalty(logits, y),
    }
    found = race({name: both_ways(loss) for name, loss in losses.items()}, rounds=8, repeats=4)
    times = {name: seconds for name, (seconds, _) in found.items()}
    notes = {name: f"value {value:.6f}" for name, (_, value) in found.items()}
    title = f"MMCE forward and backward, n = {rows:,}, the term alone"
    report.section(title, times, notes, ours="equipoise MMCE")
    ours = times["equipoise MMCE"]
    report.check("MMCE: n x n / ours", times["MMCE, n x n"] / ours, 100)
    weighted = times["netcal MMCEPenalty (MMCE-W)"] / times["equipoise MMCE-W"]
    report.check("MMCE-W: netcal / ours", weighted, 10)


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    scale = 10 if parser.parse_args().quick else 1
    warnings.filterwarnings("ignore", module="(netcal|torchmetrics|pyro|gpytorch).*")
    torch.set_num_threads(1)
    report = Report(RESULTS, ("numpy", "torch", "scikit-learn", "netcal", "torchmetrics"))
    kernels(report, 4096)
    for classes in (2, 10):
        temperatures(report, 1_000_000 // scale, classes)
    for classes in (2, 10):
        calibration_errors(report, 10_000_000 // scale, classes)
    report.finish()


if __name__ == "__main__":
    main()
