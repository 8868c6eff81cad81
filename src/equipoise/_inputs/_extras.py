"""Libraries that only some of the package needs: imported when used, missed by name."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any


def need(library: str, extra: str = "", at_least: str = "", *, what: str = "this") -> Any:
    """Import a library, or say how to install it.

    Parameters
    ----------
    library
        Name of the module, such as "polars" or "pyspark.sql".
    extra
        The extra of this package that brings it; empty if the package itself requires it.
    at_least
        Lowest version that works.
    what
        What needs it, for the message.
    """
    root = library.split(".")[0]
    wanted = f"{root} {at_least} or later" if at_least else root
    remedy = f"'equipoise[{extra}]'" if extra else f"'{root}>={at_least}'" if at_least else root
    try:
        module = import_module(library)
        found = str(getattr(import_module(root), "__version__", ""))
    except ModuleNotFoundError as error:
        if (error.name or root).split(".")[0] != root:
            raise
        raise ImportError(f"{what} needs {wanted}: pip install {remedy}", name=root) from None
    if at_least and found and _numbers(found) < _numbers(at_least):
        raise ImportError(
            f"{what} needs {wanted}, and {found} is installed: pip install --upgrade {remedy}",
            name=root,
        )
    return module


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
