"""Features and sensitive columns of one frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw


def split_columns(
    X: Any,
    sensitive_columns: str | Sequence[str] | None,
    sensitive_features: Any = None,
    *,
    needed: bool = True,
) -> tuple[Any, Any]:
    """Return the features and the sensitive columns, None if there are none."""
    if sensitive_columns is None:
        return X, sensitive_features
    if sensitive_features is not None:
        raise ValueError("pass sensitive_features or sensitive_columns, not both")
    names = [sensitive_columns] if isinstance(sensitive_columns, str) else list(sensitive_columns)
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise TypeError(
            f"sensitive_columns={names!r} are names, so X must be a data frame, "
            f"got {type(X).__name__}"
        )
    missing = [name for name in names if name not in frame.columns]
    if missing and not needed:
        return frame.drop([name for name in names if name not in missing]).to_native(), None
    if missing:
        raise ValueError(f"X has no column {missing[0]!r}; it has {frame.columns!r}")
    return frame.drop(names).to_native(), frame.select(names).to_native()
