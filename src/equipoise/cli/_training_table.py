"""What `train` and `search` share: options, the table they read, and what a model is saved with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from equipoise.cli._shared import GROUP_HELP

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from equipoise.datasets import Dataset

POSITIVE = click.FloatRange(min=0, min_open=True)
COUNT = click.IntRange(min=1)

COLUMNS = (
    click.option("--label", required=True, help="Column with the label."),
    click.option("--group", required=True, multiple=True, help=GROUP_HELP),
    click.option(
        "--include-group", is_flag=True, help="Use the sensitive columns as features too."
    ),
    click.option("--drop", multiple=True, help="Column to leave out, such as a row number."),
    click.option("--categorical", multiple=True, help="Column of numbers that are categories."),
)

learning_rate_option = click.option(
    "--learning-rate", type=POSITIVE, default=1e-3, help="Learning rate of Adam."
)
unseen_group_option = click.option(
    "--unseen-group",
    type=click.Choice(("error", "global", "mixture")),
    default="error",
    help="What predict does with a group that is new, missing or not given.",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    help="Seed of the rows held out, the initial weights and the batches.",
)


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name the columns of a table, given to the command as `columns`."""

    @functools.wraps(command)
    def collected(**given: Any) -> Any:
        names = ("label", "group", "include_group", "drop", "categorical")
        return command(columns={name: given.pop(name) for name in names}, **given)

    for option in reversed(COLUMNS):
        collected = option(collected)
    return collected


def own_values(dataset: Dataset) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the label and the group of each row, by their own values."""
    from equipoise._inputs import decode

    labels = decode(dataset.y, dataset.class_names)
    return labels, decode(dataset.group, dataset.group_names)


def saved_with(dataset: Dataset, rows: NDArray[np.int64] | slice = slice(None)) -> dict[str, Any]:
    """Return what `predict` needs beside a model that was trained on some rows of a table."""
    from equipoise.metrics import group_base_rates

    labels, groups = own_values(dataset)
    counts = group_base_rates(labels[rows], sensitive_features=groups[rows]).counts
    assert counts is not None
    label_counts = [[counts[g][k] for k in dataset.class_names] for g in dataset.group_names]
    assert dataset.encoder is not None  # it was read from a table
    return {"encoder": dataset.encoder.to_dict(), "label_counts": label_counts}
