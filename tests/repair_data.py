"""Rows for the tests of GroupCalibratedClassifier, and what many of them share."""

import hashlib
import json
from functools import partial
from pathlib import Path

import numpy as np

from equipoise import GroupCalibratedClassifier

Temperatures = partial(GroupCalibratedClassifier, method="temperature")


def rewrite(path, change, to=None):
    """Change the content of a file of calibrators, and give it the digest of what it now holds."""
    data = json.loads(Path(path).read_text())
    del data["sha256"]
    change(data)
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    data["sha256"] = hashlib.sha256(canonical).hexdigest()
    Path(to or path).write_text(json.dumps(data))


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
