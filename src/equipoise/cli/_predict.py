"""`equipoise predict`: probabilities of a trained model for the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from equipoise.cli._shared import (
    INPUT_FILE,
    OUTPUT_FILE,
    check_out,
    console,
    find_reference,
    measure,
    note,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from equipoise.datasets import FrameEncoder, Source
    from equipoise.training import GroupwiseMLPClassifier


@click.command()
@click.argument("model_file", metavar="MODEL", type=INPUT_FILE)
@click.argument("data")
@click.option("--out", required=True, type=OUTPUT_FILE, help="File to write: .csv or .parquet.")
@click.option("--force", is_flag=True, help="Overwrite it.")
@click.option(
    "--reference",
    metavar="GROUP",
    help="Group that PE compares the others with; by default the one that the model was trained "
    "with.",
)
def predict(model_file: Path, data: str, out: Path, force: bool, reference: str | None) -> None:
    """Predict the rows of DATA with a MODEL of `train` or `search`.

    The file written has all columns of DATA, then prob_CLASS for each class, then prediction. If
    DATA has the label, a table shows the model's accuracy, calibration and fairness.

    DATA is CSV or Parquet: a file, a folder, a pattern in quotes, or - for standard input. CSV may
    be compressed (.gz, .zst).
    """
    check_out(out, force=force, inputs=(model_file, data))

    from equipoise._files import check_ending, is_parquet, write_batches
    from equipoise._inputs import decode
    from equipoise.datasets import Source
    from equipoise.training import GroupwiseMLPClassifier

    check_ending(out)
    model = GroupwiseMLPClassifier.load(model_file)
    encoder, label_counts = _training(model, model_file)
    against = model.reference_group_
    if reference is not None:
        against = find_reference(reference, encoder.group_names)
    table = Source.of(data)
    if not table.rows:
        raise ValueError(f"{table.title} has no rows")
    names = [*(f"prob_{k}" for k in encoder.class_names), "prediction"]
    taken = [name for name in names if name in table.names]
    if taken:
        raise ValueError(f"{table.title} already has a column {taken[0]!r}; rename or drop it")

    X = encoder.transform(table)
    group = _groups(model, encoder, table)
    members = decode(group, encoder.group_names)
    prob = model.predict_proba(X, sensitive_features=members)
    label = model.predict(X, sensitive_features=members)
    written = table.arrow(typed=is_parquet(out))
    for name, values in zip(names, (*prob.T, label), strict=True):
        written = written.append_column(name, [values.tolist()])
    write_batches(out, written.schema, written.to_batches())
    click.echo(f"{table.rows:,} predictions in {out}")
    if encoder.label in table.names:
        y = encoder.labels(table)
        known = (y >= 0) & (group >= 0)
        if not known.all():
            note(
                f"{(~known).sum():,} rows are not measured: their label or group is missing or "
                "was not in the training data"
            )
        if known.any():
            own = y[known], group[known], prob[known]
            console().print(measure(encoder, label_counts, *own, against))


def _training(
    model: GroupwiseMLPClassifier, path: Path
) -> tuple[FrameEncoder, Sequence[Sequence[float]]]:
    """Return the encoder and the numbers of training labels that were saved with the model."""
    from equipoise.datasets import FrameEncoder

    extra = model.extra_
    if "encoder" not in extra or "label_counts" not in extra:
        raise ValueError(
            f"{path} was not written by `equipoise train` or `search`, so it does not say how to "
            "encode a table; load it in Python and call its predict_proba"
        )
    encoder = FrameEncoder.from_dict(extra["encoder"])
    if len(encoder.feature_names) != model.n_features_in_:
        raise ValueError(f"{path} is damaged: its encoder does not fit its network")
    return encoder, extra["label_counts"]


def _groups(
    model: GroupwiseMLPClassifier, encoder: FrameEncoder, table: Source
) -> NDArray[np.int64]:
    """Return each row's group as a position in `group_names`; -1 if it is missing or new."""
    import numpy as np

    from equipoise._inputs import shown

    needed = bool(model.groups_) and hasattr(model.scaling_, "shares_")
    strict = needed and model.unseen_group == "error"
    remedy = "or train the model with --unseen-group global or mixture"
    group = np.full(table.rows, -1)
    if strict or all(name in table.names for name in encoder.group):
        try:
            group = encoder.groups(table)
        except ValueError as error:
            raise ValueError(f"{error}; give the model the group of each row, {remedy}") from None
    unseen = group < 0
    if unseen.any() and strict:
        row = int(np.argmax(unseen))
        own = shown(tuple(table[name][row] for name in encoder.group))
        known = "; ".join(map(shown, encoder.group_names))
        raise ValueError(
            f"row {row} belongs to group {own!r}, which was not in the training data (known: "
            f"{known}); correct it, {remedy}"
        )
    if unseen.any() and needed:
        note(
            f"{unseen.sum():,} rows belong to a group that was not in the training data; they are "
            f"calibrated by the policy {model.unseen_group!r}"
        )
    return group
