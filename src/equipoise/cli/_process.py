"""How a command runs as a process: standard output, signals, exit codes, and every message.

The exit code is 0 (done, all gates pass), 1 (a gate fails or an alarm rings), 2 (bad input, or the
result cannot be shown), 130 (Ctrl-C) or 128 plus the number of another signal.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import click

DEBUG = "EQUIPOISE_DEBUG"
"""Environment variable; where it is set, errors have a traceback."""


class BadInput(click.ClickException):
    """A mistake in the input. Its exit code is 2, since 1 means that a gate fails."""

    exit_code = 2


class Commands(click.Group):
    """The group of all commands; each of its errors is a sentence, and none exits with 1."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command with a standard output that survives a reader that leaves."""
        if sys.stdout is None:
            _say("Error: standard output is closed; send it to a file, or to /dev/null")
            raise SystemExit(2)
        with _terminated(), _standard_output():
            try:
                return super().main(*args, **options)
            except OSError as error:  # of --version or --help, which no command writes
                if os.environ.get(DEBUG):
                    raise
                _say(f"Error: {_sentence(error)}")
                raise SystemExit(2) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Report every mistake in one sentence."""
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
            return found
        except (click.exceptions.Exit, click.Abort):
            raise
        except click.ClickException as error:
            vars(error)["message"] = printable(error.message)
            raise
        except KeyboardInterrupt as stopped:
            _say(printable("; ".join(getattr(stopped, "__notes__", ["Stopped by Ctrl-C."]))))
            raise SystemExit(128 + signal.SIGINT) from None
        except Exception as error:
            if os.environ.get(DEBUG):
                raise
            raise BadInput(_sentence(error)) from error


def printable(text: str) -> str:
    """Return text with the characters that a terminal acts on escaped."""
    from equipoise._inputs import printable as escaped  # NumPy comes with it

    return escaped(text)


def in_options(problem: BaseException | str) -> str:
    """Return an error or a warning in the words of the command line."""
    own = getattr(problem, "for_command", None)
    return printable(str(problem) if own is None else str(own()))


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        return printable(f"{name}{error.strerror}")
    if isinstance(error, OSError | TypeError | ValueError | ImportError):
        return in_options(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory; pass fewer rows or columns, or use a larger machine"
    return printable(
        f"{type(error).__name__}: {error}. This is a fault of equipoise; please report it with "
        f"the command, and with what it prints when {DEBUG}=1 is set"
    )


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


# --- standard output -------------------------------------------------------------------------


class _Output(io.FileIO):
    """Standard output; what is written after its reader has left (`| head`) is dropped."""

    lost = False

    def write(self, data: Any) -> int:
        if not self.lost:
            try:
                return super().write(data) or 0
            except BrokenPipeError:
                self.lost = True
            except OSError as error:  # a full disk, for example; not tried again at the end
                self.lost = True
                raise OSError(
                    f"standard output cannot be written to ({error.strerror}); send it elsewhere"
                ) from None
        return len(data)


@contextlib.contextmanager
def _standard_output() -> Iterator[None]:
    """Replace standard output, unless it was replaced already, as in tests."""
    real = sys.stdout
    if real is not sys.__stdout__ or not isinstance(real, io.TextIOWrapper):
        yield
        return
    raw = io.BufferedWriter(_Output(real.fileno(), "w", closefd=False))
    sys.stdout = io.TextIOWrapper(
        raw, real.encoding, "backslashreplace", line_buffering=real.isatty()
    )
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = real


# --- signals ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """End by SIGTERM or SIGHUP as by an exception, so that temporary files are removed."""

    def stop(number: int, _frame: Any) -> None:
        raise SystemExit(128 + number)

    before: dict[int, Any] = {}
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            with contextlib.suppress(ValueError):  # not in the main thread
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
