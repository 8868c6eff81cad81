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
    safe_csv_option,
    say,
)

if TYPE_CHECKING:
    from equipoise.datasets import FrameEncoder
    from equipoise.training import GroupwiseMLPClassifier


@click.command()
@click.argument("model_file", metavar="MODEL", type=INPUT_FILE)
@click.argument("data")
@click.option("--out", required=True, type=OUTPUT_FILE, help="File to write: .csv or .parquet.")
@click.option("--force", is_flag=True, help="Overwrite it.")
@safe_csv_option
@click.option(
    "--reference",
    metavar="GROUP",
    help="Group that PE compares the others with; by default the one that the model was trained "
    "with.",
)
def predict(
    model_file: Path, data: str, out: Path, force: bool, safe_csv: bool, reference: str | None
) -> None:
    """Predict the rows of DATA with a MODEL of `train` or `search`.

    The file written has all columns of DATA, then prob_CLASS for each class, then prediction. If
    DATA has the label, a table shows the model's accuracy, calibration and fairness.

    DATA is CSV or Parquet: a file, a folder, a pattern in quotes, or - for standard input. CSV may
    be compressed (.gz, .zst).
    """
    check_out(out, force=force, inputs=(model_file, data))

    from equipoise._files import check_ending, is_parquet, reader, write_batches
    from equipoise._inputs import counted
    from equipoise.cli._predicted_rows import PredictedRows
    from equipoise.training import GroupwiseMLPClassifier

    check_ending(out, safe_csv=safe_csv)
    model = GroupwiseMLPClassifier.load(model_file)
    encoder, label_counts = _training(model, model_file)
    against = model.reference_group_
    if reference is not None:
        against = find_reference(reference, encoder.group_names)
    with reader(data) as files:
        stream = PredictedRows(files, model, encoder, typed=is_parquet(out))
        write_batches(out, stream.schema, stream.batches(), safe_csv=safe_csv)
    if stream.needs_groups and stream.unseen:
        which = "row belongs" if stream.unseen == 1 else "rows belong"
        note(
            f"{stream.unseen:,} {which} to a group that was not in the training data; calibrated "
            f"by the policy {model.unseen_group!r}"
        )
    say(f"{counted(stream.rows, 'prediction')} in {out}")
    if stream.unmeasured:
        which = "row is" if stream.unmeasured == 1 else "rows are"
        note(
            f"{stream.unmeasured:,} {which} not measured: the label or group is missing or was not "
            "in the training data"
        )
    if stream.table is not None:
        console().print(measure(encoder, label_counts, stream.table, against))


def _training(
    model: GroupwiseMLPClassifier, path: Path
) -> tuple[FrameEncoder, Sequence[Sequence[float]]]:
    """Return the encoder and the numbers of training labels that were saved with the model."""
    import numpy as np

    from equipoise._files import restoring
    from equipoise.datasets import FrameEncoder

    extra = model.extra_
    if "encoder" not in extra or "label_counts" not in extra:
        raise ValueError(
            f"{path} was not written by `equipoise train` or `search`, so it does not say how to "
            "encode a table; load it in Python and call its predict_proba"
        )
    with restoring(f"{path} is damaged"):
        encoder = FrameEncoder.from_dict(extra["encoder"])
        counts = np.array(extra["label_counts"], np.float64)
        classes, groups = len(encoder.class_names), len(encoder.group_names)
        if len(encoder.feature_names) != model.n_features_in_ or classes != len(model.classes_):
            raise ValueError("its encoder does not fit its network")
        if counts.shape != (groups, classes) or not ((counts >= 0) & (counts < np.inf)).all():
            raise ValueError("its numbers of training labels do not fit its groups")
    return encoder, counts.tolist()
