"""Errors and warnings with fields: the problem, and its remedy in Python and for commands."""

from __future__ import annotations

import sys
import warnings


class _Advice(Exception):
    """What `InputError` and `InputWarning` share.

    Attributes
    ----------
    problem
        What is wrong.
    remedy
        What to do in Python.
    option
        What to do on the command line, where that is something else.
    """

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
    """Something about what was passed that the caller should know."""


class ColumnOrderWarning(InputWarning):
    """Names and order of the columns of probabilities disagree about their labels."""


def warn_caller(warning: Warning) -> None:
    """Warn at the line outside of this package that led here, however deep in it this is."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("equipoise"):
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)
