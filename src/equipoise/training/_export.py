"""A trained perceptron with its preprocessing and calibrators as an ONNX graph."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import shown, text_of, to_plain
from equipoise.calibration import (
    ExportError,
    OnnxGraph,
    calibrators_to_onnx,
    run_onnx,
    softmax,
    write_onnx,
)
from equipoise.datasets import Preprocessor

Floats = NDArray[np.float64]

TOLERANCE = 1e-6
ROWS = 64
"""Rows that each group is verified on."""


def network_to_onnx(
    model: Any, path: str | os.PathLike[str] | None, group: str | Sequence[str] | None
) -> Any:
    """Return the ModelProto of a fitted `GroupwiseMLPClassifier`, verified; write it to a path."""
    graph, size = OnnxGraph(), len(model.classes_)
    given = graph.input("X", ["n", len(model.preprocessor_.columns)])
    standard = _standardised(graph, given, model.preprocessor_)
    largest = graph.constant(np.finfo(np.float32).max)
    finite = graph.op("LessOrEqual", graph.op("Abs", standard), largest)
    lowest = graph.reduce("Min", graph.op("Cast", finite, to="DOUBLE"))
    sound = graph.op("Greater", lowest, graph.constant(0.0))
    # else zeros times infinity would be NaN in rows beside it
    logits = _forward(graph, graph.op("Where", sound, standard, graph.constant(0.0)), model.layers_)
    members: list[str] = []
    if model.scaling_ is None:
        each = graph.op("Exp", graph.op("Sub", logits, graph.reduce("Max", logits)))
        prob = graph.op("Div", each, graph.reduce("Sum", each))
        prob = graph.op("Where", sound, prob, graph.constant(np.nan))
    else:
        prob, members = calibrators_to_onnx(graph, logits, sound, model.scaling_, group)
    graph.output("probabilities", prob, ["n", size])
    about = {
        "classes": [to_plain(label) for label in model.classes_.tolist()],
        "features": list(model.preprocessor_.columns),
        "groups": [to_plain(g) for g in model.groups_],
        "unseen_group": model.unseen_group,
    }
    groups = f" {', '.join(map(shown, members))}: string (n,)." if members else ""
    width = len(model.preprocessor_.columns)
    text = f"Calibrated probabilities of a perceptron. X: double (n, {width}), NaN is missing."
    built = graph.model(text + groups, about)
    _verify(model, built, members)
    return write_onnx(built, path)


def _standardised(graph: OnnxGraph, given: str, preprocessor: Preprocessor) -> str:
    """Return features (n, output), as `Preprocessor.transform` gives them."""
    missing = graph.op("IsNaN", given)
    filled = graph.op("Where", missing, graph.constant(preprocessor.fill), given)
    if preprocessor.flagged:
        flags = graph.op("Gather", missing, graph.integers(*preprocessor.flagged), axis=1)
        filled = graph.op("Concat", filled, graph.op("Cast", flags, to="DOUBLE"), axis=1)
    centred = graph.op("Sub", filled, graph.constant(preprocessor.mean))
    scaled = graph.op("Div", centred, graph.constant(preprocessor.scale))
    # they were rounded to single precision in training
    return graph.op("Cast", graph.op("Cast", scaled, to="FLOAT"), to="DOUBLE")


def _forward(
    graph: OnnxGraph, active: str, layers: Sequence[tuple[NDArray[Any], NDArray[Any]]]
) -> str:
    for i, (weight, bias) in enumerate(layers):
        active = graph.op("MatMul", active, graph.constant(weight))
        active = graph.op("Add", active, graph.constant(bias))
        if i < len(layers) - 1:
            active = graph.op("Relu", active)
    return active


# --- verification ----------------------------------------------------------------------------


def _verify(model: Any, built: Any, members: Sequence[str]) -> None:
    """Compare with Python on made-up rows of each group and of none; raise if they differ."""
    known: list[Any] = [*model.groups_, None] if members else [None]
    strict = bool(members) and model.unseen_group == "error"
    X = np.tile(_rows(model.preprocessor_), (len(known), 1))
    groups = [g for g in known for _ in range(len(X) // len(known))]
    refused = np.array([strict and g is None for g in groups]) | np.isinf(X).any(axis=1)
    expected = np.full((len(X), len(model.classes_)), np.nan)
    kept = np.flatnonzero(~refused)
    expected[kept] = _python(model, X[kept], [groups[i] for i in kept], members)
    keys = [g if isinstance(g, tuple) else (g,) * max(1, len(members)) for g in groups]
    texts = {
        name: np.array([text_of(key[j]) or "" for key in keys], dtype=object)
        for j, name in enumerate(members)
    }
    found = run_onnx(built, {"X": X, **texts})
    with np.errstate(invalid="ignore"):
        same = np.abs(found - expected) <= TOLERANCE
    same |= np.isnan(found) & np.isnan(expected)
    if not same.all():
        i, k = np.argwhere(~same)[0].tolist()
        raise ExportError(
            f"onnxruntime gives {found[i, k]!r} as the probability of "
            f"{shown(model.classes_.tolist()[k])!r} for the group {shown(groups[i])!r} and the "
            f"features {X[i].tolist()}, and Python {expected[i, k]!r}; nothing was written. Report "
            "it, with the versions of equipoise and onnxruntime"
        )


def _rows(preprocessor: Preprocessor) -> Floats:
    """Return rows that are like the fitted ones, far from them, missing and infinite."""
    rng, width = np.random.default_rng(0), len(preprocessor.columns)
    mean, scale = preprocessor.mean[:width], preprocessor.scale[:width]
    spread = np.tile([1.0, 30.0, 0.0, 1e4], ROWS // 4)[:, None]
    X: Floats = mean + scale * spread * rng.normal(size=(ROWS, width))
    X[::3][rng.random(X[::3].shape) < 0.3] = np.nan
    X[-2], X[-1, 0] = np.nan, np.inf
    return X


def _python(model: Any, X: Floats, groups: Sequence[Any], members: Sequence[str]) -> Floats:
    logits = model._forward(model.preprocessor_.transform(X))
    if model.scaling_ is None:
        return np.asarray(softmax(logits))
    if not members:
        return np.asarray(model.scaling_.predict_proba(logits))
    wide = [g if isinstance(g, tuple) else (g,) * len(members) for g in groups]
    values = np.empty((len(wide), len(members)), dtype=object)
    for i, row in enumerate(wide):
        values[i] = row
    own = values[:, 0] if len(members) == 1 else values
    return np.asarray(model.scaling_.predict_proba(logits, sensitive_features=own))
