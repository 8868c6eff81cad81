"""Bias-corrected temperatures in worlds of their own form: errors vanish as rows grow."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import softmax

from calibration_worlds import drawn
from equipoise.calibration import GroupCalibrator
from equipoise.metrics import classwise_calibration_error, proportional_equality

SLOPE = np.array([0.5, 0.9, 1.6])


def truth(z, group):
    """Return the true probabilities: each group has a slope and biases of its own."""
    shift = np.array([-0.6, 0.3, 0.9])[group][:, None] * np.linspace(1.0, -1.0, z.shape[1])
    return softmax(SLOPE[group][:, None] * z + shift, axis=1)


def rows(rng, n, classes):
    group = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    z = 1.5 * rng.normal(size=(n, classes)) + 0.7 * (group == 2)[:, None] * np.eye(classes)[0]
    return z, group


def errors(method, n, classes, seed, **how):
    """Return PE and the mean distance from the truth, both on new rows."""
    rng = np.random.default_rng([8, classes, n, seed])
    z, group = rows(rng, n, classes)
    model = GroupCalibrator(method=method, **how)
    model.fit(z, drawn(rng, truth(z, group)), sensitive_features=group)
    new, member = rows(rng, 30_000, classes)
    prob, true = model.predict_proba(new, sensitive_features=member), truth(new, member)
    rates = {g: dict(enumerate(true[member == g].mean(axis=0))) for g in range(3)}
    pe = proportional_equality(
        None, prob, sensitive_features=member, base_rates=rates, reference_group="all"
    )
    return pe, np.abs(prob - true).mean()


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("shrinkage", [0, "auto"])
def test_pe_and_the_error_of_every_class_vanish_as_rows_grow(classes, shrinkage):
    sizes = (1000, 10_000, 100_000)
    found = {
        n: np.mean([errors("bcts", n, classes, s, shrinkage=shrinkage) for s in range(6)], axis=0)
        for n in sizes
    }
    for few, many in pairwise(sizes):
        # ten times the rows: a third of the error
        assert (found[many] < 0.5 * found[few]).all()
    pe, distance = found[100_000]
    assert pe < 0.05
    assert distance < 0.004
    # temperatures per group leave the groups' rates as they are
    assert errors("temperature", 100_000, classes, 0, shrinkage=shrinkage)[0] > 0.3


def test_pe_falls_on_new_rows():
    few, many = (errors("bcts", n, 2, 0) for n in (300, 30_000))
    assert many[0] < 0.05 < 0.3 < errors("temperature", 30_000, 2, 0)[0]
    assert many[1] < 0.005
    assert many[1] < few[1]


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_class_wise_calibration_error_vanishes(classes):
    rng = np.random.default_rng(classes)
    z, group = rows(rng, 100_000, classes)
    y = drawn(rng, truth(z, group))
    new, member = rows(rng, 200_000, classes)
    labels = drawn(rng, truth(new, member))
    found = {}
    for method in ("none", "temperature", "bcts"):
        model = GroupCalibrator(method=method).fit(z, y, sensitive_features=group)
        prob = model.predict_proba(new, sensitive_features=member)
        found[method] = [
            classwise_calibration_error(labels[own], prob[own])
            for own in (member == g for g in range(3))
        ]
    assert max(found["bcts"]) < 0.01
    assert min(found["temperature"]) > 0.03
    assert min(found["none"]) > 0.03
