"""Group metrics as scikit-learn scorers that ask for `sensitive_features` by metadata routing.

::

    sklearn.set_config(enable_metadata_routing=True)
    cross_validate(model, X, y, scoring=neg_proportional_equality,
                   params={"sensitive_features": a})

A model that reads the group from a column of X must decline `sensitive_features` in its `fit`:
``model.set_fit_request(sensitive_features=False)``.

Scorers are maximised, so they return the metric times -1. Where the metric of a fold is infinite or
nan (a class is never predicted for a group), so is the score.

`neg_proportional_equality` compares with the first group in sorted order, since the largest may
differ between folds; ``GroupScorer(proportional_equality, reference_group="m")`` names another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from equipoise.metrics._metrics import groupwise_calibration_error
from equipoise.metrics._proportional_equality import proportional_equality

if TYPE_CHECKING:
    from sklearn.utils.metadata_routing import MetadataRequest


class GroupScorer:
    """Minus a group metric of an estimator's probabilities.

    Parameters
    ----------
    metric
        ``metric(y_true, y_prob, *, sensitive_features, labels, **params) -> float``; smaller is
        better.
    **params
        Passed to the metric with every call.

    Examples
    --------
    >>> GroupScorer(proportional_equality, kind="deterministic")
    GroupScorer(proportional_equality, kind='deterministic')
    """

    def __init__(self, metric: Callable[..., float], **params: Any) -> None:
        self.metric = metric
        self.params = params

    def get_metadata_routing(self) -> MetadataRequest:
        """Ask scikit-learn for the sensitive features of the rows to score."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=self)
        request.score.add_request(param="sensitive_features", alias=True)
        return request

    def __call__(self, estimator: Any, X: Any, y: Any, *, sensitive_features: Any = None) -> float:
        """Score a fitted classifier on (X, y)."""
        if sensitive_features is None:
            raise ValueError(
                f"{self!r} needs sensitive_features: call it with them, or, inside "
                "cross_validate or GridSearchCV, sklearn.set_config(enable_metadata_routing=True) "
                "and pass params={'sensitive_features': ...}"
            )
        return -self.metric(
            y,
            estimator.predict_proba(X),
            sensitive_features=sensitive_features,
            labels=tuple(estimator.classes_.tolist()),
            **self.params,
        )

    def __repr__(self) -> str:
        params = "".join(f", {k}={v!r}" for k, v in self.params.items())
        return f"{type(self).__name__}({getattr(self.metric, '__name__', self.metric)}{params})"


def worst_group_ece(y_true: Any, y_prob: Any, **kwargs: Any) -> float:
    """Return the largest top-label ECE of any group."""
    return max(groupwise_calibration_error(y_true, y_prob, **kwargs).values())


def calibration_gap(y_true: Any, y_prob: Any, **kwargs: Any) -> float:
    """Return the difference between the largest and the smallest group-wise ECE."""
    errors = groupwise_calibration_error(y_true, y_prob, **kwargs).values()
    return max(errors) - min(errors)


neg_proportional_equality = GroupScorer(proportional_equality)
neg_worst_group_ece = GroupScorer(worst_group_ece)
neg_calibration_gap = GroupScorer(calibration_gap)
