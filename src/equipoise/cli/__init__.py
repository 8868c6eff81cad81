"""The command `equipoise`, one module per command.

A command imports what it needs when it runs, so that `--help` does not wait for torch.
"""

from __future__ import annotations

import click

from equipoise import __version__
from equipoise.cli._audit import audit
from equipoise.cli._calibrate import calibrate
from equipoise.cli._datasets import datasets
from equipoise.cli._predict import predict
from equipoise.cli._process import Commands
from equipoise.cli._reproduce import reproduce
from equipoise.cli._search import search
from equipoise.cli._train import train


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="equipoise")
def main() -> None:
    """Audit, repair and train classifiers that are both fair and calibrated."""


for command in (audit, calibrate, datasets, predict, reproduce, search, train):
    main.add_command(command)
