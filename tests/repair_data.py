"""Rows for the tests of GroupCalibratedClassifier, and what many of them share."""

from functools import partial

import numpy as np

from equipoise import GroupCalibratedClassifier

Temperatures = partial(GroupCalibratedClassifier, method="temperature")


def sample(n=400, classes=2, groups=("f", "m"), seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    group = np.array(groups, dtype=object)[rng.integers(0, len(groups), n)]
    score = 2 * X[:, :classes] + (group == groups[0])[:, None] * np.arange(classes)
    y = np.array(["ay", "bee", "sea"])[(score + rng.gumbel(size=score.shape)).argmax(axis=1)]
    return X, y, group


def agree(model, X, group):
    """Assert that predictions are the estimator's own, and the largest probability agrees."""
    prob = model.predict_proba(X, sensitive_features=group)
    np.testing.assert_allclose(prob.sum(axis=1), 1.0)
    own = model.estimator_.predict(X)
    assert model.predict(X).tolist() == own.tolist()
    assert model.classes_[prob.argmax(axis=1)].tolist() == own.tolist()
