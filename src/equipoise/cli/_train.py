"""`equipoise train`: fit a classifier to a table, and measure it on rows held out."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from equipoise.cli._shared import (
    OUTPUT_FILE,
    check_out,
    console,
    find_reference,
    measure,
    reference_option,
    shrinkage_option,
    summed,
)
from equipoise.cli._training_table import (
    COUNT,
    learning_rate_option,
    own_values,
    saved_with,
    seed_option,
    show_columns,
    table_options,
    unseen_group_option,
)
from equipoise.training import LOSS_NAMES, STOPPING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from equipoise.auditing import AuditReport
    from equipoise.datasets import Dataset
    from equipoise.training import GroupwiseMLPClassifier

_FRACTION = click.FloatRange(0, 1, min_open=True, max_open=True)


def _sizes(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(v) for v in text.split(","))
    except ValueError:
        sizes = (0,)
    if min(sizes) < 1:
        raise click.BadParameter(f"{text!r} is no list of layer sizes such as 128,64")
    return sizes


def _weight(_ctx: click.Context, _param: click.Parameter, text: str) -> str | float | None:
    if text in ("equal", "share"):
        return text
    if text == "none":
        return None
    with suppress(ValueError):
        if 0.0 <= float(text) <= 1.0:
            return float(text)
    raise click.BadParameter(f"{text!r} is neither equal, share, none nor a number from 0 to 1")


def _or_none(_ctx: click.Context, _param: click.Parameter, text: str) -> str | None:
    return None if text == "none" else text


@click.command(context_settings={"show_default": True})
@click.argument("data")
@table_options
@click.option("--out", required=True, type=OUTPUT_FILE, help="File to write the model to.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--loss", type=click.Choice(LOSS_NAMES), default="mmce", help="Training loss.")
@click.option(
    "--rho",
    default="equal",
    callback=_weight,
    metavar="WEIGHT",
    help="Weights of the groups in the loss: equal; share, of the rows; a number from 0 to 1, for "
    "the second of two groups in sorted order; none, the ungrouped loss.",
)
@click.option(
    "--lam", type=click.FloatRange(min=0), default=2.0, help="Strength of the calibration term."
)
@click.option(
    "--hidden-layer-sizes",
    "hidden_layer_sizes",
    default="128,64",
    callback=_sizes,
    metavar="SIZES",
    help="Nodes of each hidden layer.",
)
@learning_rate_option
@click.option(
    "--max-epochs", type=COUNT, default=200, help="Largest number of passes over the training rows."
)
@click.option("--batch-size", type=COUNT, default=256, help="Rows per step.")
@click.option(
    "--early-stopping",
    type=click.Choice((*STOPPING, "none")),
    default="log_loss",
    callback=_or_none,
    help="Validation metric whose best epoch is kept; none: the last epoch.",
)
@click.option(
    "--patience",
    type=COUNT,
    default=20,
    help="Epochs without a better value before training stops.",
)
@click.option(
    "--validation-fraction",
    type=_FRACTION,
    default=0.125,
    help="Share of the training rows held out for stopping and temperatures.",
)
@click.option(
    "--calibrate",
    type=click.Choice(("group", "bcts", "common", "none")),
    default="group",
    callback=_or_none,
    help="A temperature for each group, a temperature and a bias for each class and group (bcts), "
    "one temperature for all, or none.",
)
@shrinkage_option
@unseen_group_option
@reference_option
@click.option(
    "--test-fraction", type=_FRACTION, default=0.125, help="Share of the rows held out as test set."
)
@seed_option
def train(
    data: str,
    columns: dict[str, Any],
    out: Path,
    force: bool,
    reference: str | None,
    test_fraction: float,
    seed: int,
    **parameters: Any,
) -> None:
    """Train a classifier on DATA: CSV or Parquet files, or - for standard input.

    A first table shows how each column was read; --as and --drop overrule it. Part of the rows is
    held out: a second table shows the model's metrics there, overall and per group.
    The other options are the parameters of GroupwiseMLPClassifier.
    """
    check_out(out, force=force, inputs=(data,))

    from equipoise._inputs import need
    from equipoise.datasets import Dataset
    from equipoise.training import GroupwiseMLPClassifier

    need("torch", "train", what="equipoise.training")
    dataset = Dataset.from_frame(data, **columns)
    assert dataset.encoder is not None  # it was read from a table
    if isinstance(parameters["rho"], float) and len(dataset.group_names) != 2:
        raise click.BadParameter(
            f"a number is for two groups, but there are {len(dataset.group_names)}; "
            "pass equal, share or none",
            param_hint="'--rho'",
        )
    if reference is not None:
        parameters["reference_group"] = find_reference(reference, dataset.group_names)
    rows, test = _hold_out(dataset, test_fraction, seed)
    show_columns(dataset)
    labels, groups = own_values(dataset)
    model = GroupwiseMLPClassifier(**parameters, random_state=seed)
    with console(stderr=True).status(f"Training on {len(rows):,} rows ..."):  # on a terminal only
        model.fit(dataset.X[rows], labels[rows].tolist(), sensitive_features=groups[rows])
    prob = model.predict_proba(dataset.X[test], sensitive_features=groups[test])
    extra = saved_with(dataset, rows)
    held_out = summed(dataset.encoder, dataset.y[test], dataset.group[test], prob)
    report = measure(dataset.encoder, extra["label_counts"], held_out, model.reference_group_)
    split = {"test_fraction": test_fraction, "seed": seed}
    model.save(out, extra={**extra, "split": split})
    _show(report, model, f"{len(test):,} of the {len(dataset.y):,} rows of {dataset.title}", out)


def _hold_out(
    dataset: Dataset, fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of training and test; an eighth is the test part of `Dataset.split`."""
    import numpy as np

    from equipoise.datasets import shuffled

    n = len(dataset.y)
    order = shuffled(n, seed, dataset.group * len(dataset.class_names) + dataset.y)
    test, train = np.split(order, [int(np.ceil(fraction * n))])
    for codes, names, what in (
        (dataset.y, dataset.class_names, "class"),
        (dataset.group, dataset.group_names, "group"),
    ):
        lacking = np.setdiff1d(np.arange(len(names)), codes[train])
        if len(lacking):
            raise ValueError(
                f"no row of {what} {names[lacking[0]]!r} is left for training; "
                "lower --test-fraction, or add rows"
            )
    return np.sort(train), np.sort(test)


def _show(report: AuditReport, model: GroupwiseMLPClassifier, what: str, out: Path) -> None:
    from rich.text import Text

    from equipoise._inputs import shown

    lines = [("epochs", f"{model.n_iter_} run, the weights of epoch {model.best_epoch_} kept")]
    if hasattr(model, "temperature_"):
        own = getattr(model, "temperatures_", {})
        each = [f"{shown(g)}: {own[g]:.3f}" for g in model.groups_ if own]
        lines.append(("temperature", "; ".join([*each, f"common: {model.temperature_:.3f}"])))
    lines.append(("model", str(out)))
    screen = console()
    screen.print(Text(f"Held out: {what}", "bold"), soft_wrap=True)
    screen.print(report)
    for label, value in lines:
        screen.print(Text.assemble((f"{label:12}", "dim"), value), soft_wrap=True)
