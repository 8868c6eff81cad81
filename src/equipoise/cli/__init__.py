"""The command `equipoise`, one module per command.

A command imports what it needs when it runs, so that `--help` does not wait for torch.
"""

from __future__ import annotations

from typing import Any

import click

from equipoise import __version__
from equipoise.cli._audit import audit
from equipoise.cli._calibrate import calibrate
from equipoise.cli._datasets import datasets
from equipoise.cli._predict import predict
from equipoise.cli._reproduce import reproduce
from equipoise.cli._search import search
from equipoise.cli._shared import BadInput, in_options
from equipoise.cli._train import train


class _Group(click.Group):
    """Report a mistake in the input in one line, without a traceback, and exit with 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (OSError, TypeError, ValueError, ImportError) as error:
            raise BadInput(in_options(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="equipoise")
def main() -> None:
    """Audit, repair and train classifiers that are both fair and calibrated."""


for command in (audit, calibrate, datasets, predict, reproduce, search, train):
    main.add_command(command)
