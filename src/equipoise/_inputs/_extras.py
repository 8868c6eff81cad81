"""Libraries that only some commands need, imported when they are used."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any


def need(library: str, extra: str = "", at_least: str = "", *, what: str = "this") -> Any:
    """Import a module such as "pyspark.sql", or say how to install it.

    `extra` is the extra of this package that brings it, empty if the package itself does;
    `what` is the subject of the message: what needs the library.
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
