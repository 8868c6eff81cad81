"""Errors and warnings with fields: the problem, and its remedy in Python and for commands."""

from __future__ import annotations

import sys
import warnings


class _Advice(Exception):
    """A problem, its remedy in Python, and its remedy on the command line if that differs."""

    def __init__(self, problem: str, remedy: str = "", option: str = "") -> None:
        super().__init__(f"{problem}; {remedy}" if remedy else problem)
        self.problem, self.remedy, self.option = problem, remedy, option

    def for_command(self) -> str:
        """Return the message in the words of the command line."""
        remedy = self.option or self.remedy
        return f"{self.problem}; {remedy}" if remedy else self.problem


class InputError(_Advice, ValueError):
    """A mistake in what was passed."""


class InputWarning(_Advice, UserWarning):
    """A doubt about what was passed."""


class ColumnOrderWarning(InputWarning):
    """The names of probability columns contradict their order."""


def warn_caller(warning: Warning) -> None:
    """Warn at the caller's line: the last one outside of this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("equipoise"):
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)
