"""The command `equipoise`, one module per command.

A command imports what it needs when it runs, so that `--help` does not wait for torch.
"""

from __future__ import annotations

from typing import Any

import click

from equipoise import __version__
from equipoise.cli import (
    _audit as audit,
)
from equipoise.cli import (
    _calibrate as calibrate,
)
from equipoise.cli import (
    _datasets as datasets,
)
from equipoise.cli import (
    _predict as predict,
)
from equipoise.cli import (
    _reproduce as reproduce,
)
from equipoise.cli import (
    _search as search,
)
from equipoise.cli import (
    _train as train,
)
from equipoise.cli._shared import BadInput, said


class _Group(click.Group):
    """Shows a mistake in the input as one line instead of a traceback, and exits with 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (OSError, TypeError, ValueError, ImportError) as error:
            raise BadInput(said(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="equipoise")
def main() -> None:
    """Make classifiers that are both fair and calibrated, and show how fair and calibrated."""


main.add_command(audit.audit)
main.add_command(calibrate.calibrate)
main.add_command(datasets.datasets)
main.add_command(predict.predict)
main.add_command(reproduce.reproduce)
main.add_command(search.search)
main.add_command(train.train)
