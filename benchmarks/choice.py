"""Does a search choose well? On public data, where nothing is to be gained, and under the null.

    make choice
    python benchmarks/choice.py [--only public|nothing|null] [--repeats N] [--markdown FILE]

public: four data sets; each repeat draws rows, searches with the defaults, and measures the chosen
model and `GroupwiseMLPClassifier` with its defaults, fitted to the same rows, on 30,000 other rows.
nothing: made-up data on which cross-entropy cannot be improved: groups that do not differ, and
labels drawn from a logistic model. null: every loss is replaced by cross-entropy. Each repeat is
kept in build/choice, so that a run that was stopped goes on; the trained runs of the public
searches are kept too, so that another rule of choice is measured without training them again. The
results go to benchmarks/results/choice.json.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from choice_page import page
from sklearn.metrics import log_loss

from equipoise import FrontierSearch, GroupwiseMLPClassifier
from equipoise.datasets import load
from equipoise.metrics import expected_calibration_error, proportional_equality
from equipoise.training import LOSSES

HERE = Path(__file__).parent
KEPT = HERE.parent / "build" / "choice"
RESULTS = HERE / "results" / "choice.json"
PUBLIC = ("compas", "census-income", "acs-massachusetts", "mortgages")
ROWS = 1_500
TEST = 30_000
FIRST = 20
"""Number of the first repeat on public data: the rule of choice was decided on those before."""


def measured(model: Any, X: np.ndarray, y: np.ndarray, a: np.ndarray, reference: int) -> dict:
    """Return the figures of a model on rows that neither it nor the search has seen."""
    prob = model.predict_proba(X, sensitive_features=a)
    return {
        "log_loss": float(log_loss(y, prob, labels=[0, 1])),
        "accuracy": float((model.predict(X, sensitive_features=a) == y).mean()),
        "pe": proportional_equality(y, prob, sensitive_features=a, reference_group=reference),
        "ece": expected_calibration_error(y, prob),
    }


loaded = functools.cache(load)


def public(name: str, repeat: int) -> dict:
    """Search on some rows of a public data set, and measure on others."""
    data = loaded(name)
    order = np.random.default_rng(repeat).permutation(len(data.y))
    own, rest = order[:ROWS], order[ROWS : ROWS + TEST]
    X, y, a = data.X, data.y, data.group
    reference = int(np.bincount(a[own]).argmax())
    known = {"sensitive_features": a[own]}
    started = time.monotonic()
    runs = KEPT / "runs" / f"{name}-{repeat}"
    search = FrontierSearch(random_state=repeat, folder=runs).fit(X[own], y[own], **known)
    elapsed = time.monotonic() - started
    # of the search that trained, where the runs were kept
    seconds = kept(f"{name}-{repeat}-seconds", lambda: {"seconds": elapsed})["seconds"]
    models = {
        "search": search.best_estimator_,
        "default": GroupwiseMLPClassifier(random_state=repeat).fit(X[own], y[own], **known),
        "plain": GroupwiseMLPClassifier("ce", None, calibrate=None, random_state=repeat).fit(
            X[own], y[own], **known
        ),
    }
    found = {k: measured(m, X[rest], y[rest], a[rest], reference) for k, m in models.items()}
    return found | {"said": said(search), "seconds": seconds, "choice": choice_of(search)}


def made_up(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of two groups that do not differ, with labels of a logistic model."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 5))
    score = X @ [1.0, -1.0, 0.5, 0.0, 0.0]
    y = (score + rng.logistic(size=rows) > 0).astype(int)
    return X, y, rng.choice(["f", "m"], rows, p=[0.4, 0.6])


SMALL: dict[str, Any] = {
    "loss": ("ce", "ls", "dca", "mmce"),
    "lam": (2.0,),
    "hidden_layer_sizes": (16,),
    "max_epochs": 40,
    "learning_rate": 5e-3,
    "refit": False,
}


def nothing(repeat: int) -> dict:
    """Search where nothing is to be gained."""
    X, y, a = made_up(1_000, 10_000 + repeat)
    search = FrontierSearch(**SMALL, random_state=repeat).fit(X, y, sensitive_features=a)
    return {"said": said(search), "choice": choice_of(search)}


def null(repeat: int) -> dict:
    """Search with every loss replaced by cross-entropy; groups differ, so calibration may help."""
    X, y, a = made_up(1_000, 20_000 + repeat)
    y = np.where((a == "f") & (np.random.default_rng(repeat).random(len(y)) < 0.3), 0, y)
    before = dict(LOSSES)
    try:
        LOSSES.update(dict.fromkeys(LOSSES, LOSSES["ce"]))
        search = FrontierSearch(**SMALL, random_state=repeat).fit(X, y, sensitive_features=a)
    finally:
        LOSSES.update(before)
    return {"said": said(search), "difference": search.comparison_.get("difference")}


def said(search: FrontierSearch) -> str:
    """Return which verdict was given."""
    text = search.verdict_
    if " beats cross-entropy" in text.partition(":")[0] and not text.startswith("No"):
        return "beats"
    if text.startswith("Nothing to gain"):
        return "nothing"
    return "calibration" if "Calibration after training helps" in text else "not compared"


def choice_of(search: FrontierSearch) -> str:
    """Return the choice in a few words."""
    row = search.choice_
    return f"{row['loss']} {row['weights']} {row['lam']:g} {row['calibrate']}"


def kept(name: str, make: Callable[[], dict]) -> dict:
    """Return the result of a repeat, from its file where there is one."""
    path = KEPT / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text("utf-8"))
    found = make()
    KEPT.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found), "utf-8")
    print(name, json.dumps(found)[:300], flush=True)
    return found


def main() -> None:
    """Run what is asked for, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("public", "nothing", "null"), action="append")
    parser.add_argument("--repeats", type=int, default=20, help="repeats on each public data set")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    wanted = options.only or ["null", "nothing", "public"]
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    if "null" in wanted:
        found["null"] = [kept(f"null-{i}", lambda i=i: null(i)) for i in range(200)]
    if "nothing" in wanted:
        found["nothing"] = [kept(f"nothing-{i}", lambda i=i: nothing(i)) for i in range(100)]
    if "public" in wanted:
        # one repeat of each at a time, so that a run that is stopped has some of all
        rows: dict[str, list[dict]] = {name: [] for name in PUBLIC}
        for i in range(FIRST, FIRST + options.repeats):
            for name in PUBLIC:
                one = kept(f"{name}-{i}", lambda name=name, i=i: public(name, i))
                rows[name].append(one)
        found["public"] = rows
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    text = page(found)
    print(text)
    if options.markdown:
        options.markdown.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
