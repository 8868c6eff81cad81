"""Options, notes, checks of paths and the audit of rows that several commands share."""

from __future__ import annotations

import contextlib
import csv
import os
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console
    from rich.table import Table

    from equipoise.auditing import AuditReport
    from equipoise.datasets import FrameEncoder

INPUT_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT_FILE = click.Path(dir_okay=False, path_type=Path)


class BadInput(click.ClickException):
    """A mistake in the input. Its exit code is 2, since 1 means that a gate fails."""

    exit_code = 2


GROUP_HELP = "Sensitive column; several (--group A --group B) mean their intersection."

# columns of predictions, whichever command reads them
group_option = click.option("--group", multiple=True, help=GROUP_HELP)
prob_option = click.option(
    "--prob",
    multiple=True,
    help="Column with the probability of a class: one for each class, or a single one for the "
    "second label in sorted order.",
)


class _Shrinkage(click.ParamType):  # type: ignore[type-arg]
    """The word auto, or a number that is not negative."""

    name = "AUTO|ROWS"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return "auto" or a number."""
        if value == "auto" or isinstance(value, float):
            return value
        try:
            return click.FloatRange(min=0).convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is neither auto nor a number of rows", param, ctx)


shrinkage_option = click.option(
    "--shrinkage",
    type=_Shrinkage(),
    default="auto",
    show_default=False,
    help="How far a group's calibrator is pulled towards that of all rows: auto (the default), as "
    "far as the data warrant, or a number of rows; 0 is not at all.",
)


def listed(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> list[str] | None:
    """Return the values of an option that takes several, separated by commas or repeated."""
    found = [v for text in texts for v in next(csv.reader([text], skipinitialspace=True), [])]
    if texts and not found:
        raise click.BadParameter("it is empty; give values separated by commas")
    return found or None


labels_option = click.option(
    "--labels",
    multiple=True,
    callback=listed,
    metavar="A,B,...",
    help="Label of each --prob, in the same order; both labels if there is one --prob. By default "
    "the labels that the column names end in, else the labels in sorted order.",
)
positive_option = click.option(
    "--positive",
    metavar="LABEL",
    help="Label whose probability a single --prob holds; by default the second in sorted order.",
)
reference_option = click.option(
    "--reference",
    metavar="GROUP",
    help="Group that PE compares the others with; by default the largest.",
)


_ENGINE_OPTIONS = (
    click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        help="This machine's cores, or a Ray cluster.",
    ),
    click.option(
        "--address", help="Address of the Ray cluster; by default one is started on this machine."
    ),
    click.option(
        "--workers", type=click.IntRange(min=1), help="Parts at a time; by default one per core."
    ),
)


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where to train."""
    for option in reversed(_ENGINE_OPTIONS):
        command = option(command)
    return command


def find_reference(text: str, groups: Sequence[Hashable]) -> Hashable:
    """Return the group that `--reference` names; raise if there is none."""
    from equipoise.auditing import group_named

    try:
        return group_named(text, groups)
    except ValueError as error:
        raise ValueError(f"--reference: {error}") from None


def console(*, stderr: bool = False) -> Console:
    """Return a console that highlights nothing by itself."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def printed_whole(screen: Console, table: Table) -> None:
    """Print a table with nothing cut; where it is piped, each row is one line."""
    from rich.measure import Measurement

    size = Measurement.get(screen, screen.options.update(width=10_000), table)
    screen.width = max(screen.width, size.minimum if screen.is_terminal else size.maximum)
    screen.print(table)


def note(text: str) -> None:
    """Print a note on stderr, beside the result."""
    click.echo(f"Note: {text}", err=True)


def note_all(messages: Sequence[str], most: int = 3) -> None:
    """Print each distinct message once, and of many the first few."""
    different = list(dict.fromkeys(messages))
    for message in different[:most]:
        note(message)
    if len(different) > most:
        note(f"{len(different) - most:,} more notes are not shown")


@contextlib.contextmanager
def notes(most: int = 3) -> Iterator[None]:
    """Print warnings as notes, in the words of the command line."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:  # before an error too
        note_all([in_options(w.message) for w in caught], most)


def in_options(problem: BaseException | str) -> str:
    """Return an error or a warning in the words of the command line."""
    own = getattr(problem, "for_command", None)
    return str(problem) if own is None else str(own())


def check_out(
    out: Path, *, force: bool, inputs: Sequence[str | Path], option: str = "--out"
) -> None:
    """Raise, before any work, if the file cannot or should not be written."""
    problem = None
    if not out.parent.is_dir():
        problem = f"there is no folder {out.parent}; make it first"
    elif not os.access(out.parent, os.W_OK):
        problem = f"the folder {out.parent} cannot be written to"
    elif any(out.resolve() == Path(path).resolve() for path in inputs):
        problem = f"{out} is read by this command; choose another name"
    elif out.exists() and not force:
        problem = f"{out} exists; choose another name, or pass --force to overwrite it"
    if problem:
        raise click.BadParameter(problem, param_hint=f"'{option}'")


def measure(
    encoder: FrameEncoder,
    label_counts: Sequence[Sequence[float]],
    y: NDArray[np.int64],
    group: NDArray[np.int64],
    prob: NDArray[np.float64],
    reference: Hashable,
) -> AuditReport:
    """Audit rows of known label and group; PE compares with the rates of the training labels.

    `label_counts` are the numbers of training rows (group, class).
    `reference` is the group that PE compares the others with: where it has no rows, the largest.
    """
    import numpy as np

    from equipoise._inputs import decode, shown
    from equipoise.auditing import audit
    from equipoise.metrics import GroupRates

    classes = encoder.class_names
    counts = {
        encoder.group_names[g]: dict(zip(classes, label_counts[g], strict=True))
        for g in sorted(set(group.tolist()))
    }
    if reference not in counts:
        largest = encoder.group_names[int(np.bincount(group).argmax())]
        if len(counts) > 1:
            note(f"no row belongs to {shown(reference)}; PE compares with {shown(largest)}")
        reference = largest
    with notes(most=1):
        return audit(
            decode(y, classes),
            prob,
            sensitive_features=decode(group, encoder.group_names),
            labels=classes,
            base_rates=GroupRates.of_counts(counts),
            reference_group=reference,
        )
