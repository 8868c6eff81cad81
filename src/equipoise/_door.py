"""Doors that open late: what a room imports under TYPE_CHECKING is imported at its first use."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def opened_late(
    room: str, path: str, extra: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a room.

    Parameters
    ----------
    room, path
        ``__name__`` and ``__file__`` of its ``__init__``.
    extra
        The extra that brings the libraries that the room needs.
    """
    tree = ast.parse(Path(path).read_text("utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    homes = {
        alias.name: node.module
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as error:
            if not extra or str(error.name).startswith("equipoise"):
                raise
            raise ImportError(
                f"{room} needs {error.name}: pip install 'equipoise[{extra}]'", name=error.name
            ) from None

    return find, lambda: sorted(sys.modules[room].__all__)
