"""Options, notes, checks of paths and the audit of rows that several commands share."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from equipoise.cli._process import in_options, printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console
    from rich.table import Table

    from equipoise.auditing import AuditReport
    from equipoise.datasets import FrameEncoder
    from equipoise.metrics import AuditTable


class _InputFile(click.Path):
    """A file that is read: no pipe or device, which might be waited for without end."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path."""
        from equipoise._files import check_path

        try:
            check_path(value)
        except (OSError, ValueError) as error:
            self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


INPUT_FILE = _InputFile(exists=True, dir_okay=False, path_type=Path)
OUTPUT_FILE = click.Path(dir_okay=False, path_type=Path)


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


safe_csv_option = click.option(
    "--safe-csv",
    is_flag=True,
    help="Put an apostrophe before cells of text, and names of columns, that a spreadsheet would "
    "run: those that begin with =, +, -, @, a tab or a carriage return. Numbers stay.",
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
    """Return a console that takes all text literally, and prints none that a terminal acts on."""
    from rich.console import Console, RenderHook

    class Literal(RenderHook):
        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            return [_Checked(renderable) for renderable in renderables]

    screen = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    screen.push_render_hook(Literal())
    return screen


@dataclasses.dataclass(frozen=True)
class _Checked:
    """What is to be printed, with the control characters of its text made visible."""

    renderable: Any

    def __rich_console__(self, screen: Console, options: Any) -> Iterator[Any]:
        from rich.segment import Segment

        for text, style, control in screen.render(self.renderable, options):
            yield Segment(text if control else printable(text), style, control)


def printed_whole(screen: Console, table: Table) -> None:
    """Print a table with nothing cut; where it is piped, each row is one line."""
    from rich.measure import Measurement

    size = Measurement.get(screen, screen.options.update(width=10_000), table)
    screen.width = max(screen.width, size.minimum if screen.is_terminal else size.maximum)
    screen.print(table)


def say(text: str, *, err: bool = False) -> None:
    """Print a sentence, with names of files and data in it."""
    click.echo(printable(text), err=err)


def note(text: str) -> None:
    """Print a note on stderr, beside the result."""
    say(f"Note: {text}", err=True)


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


def check_out(
    out: Path,
    *,
    force: bool,
    inputs: Sequence[str | Path | None],
    option: str = "--out",
    endings: Sequence[str] | None = None,
) -> None:
    """Raise, before any work, if the file cannot or should not be written; see `check_output`."""
    from equipoise._files import check_output

    given = [source for source in inputs if source is not None]
    remedy = "pass --force to overwrite it"
    try:
        check_output(out, given, force=force, remedy=remedy, endings=endings)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"'{option}'") from None


def summed(
    encoder: FrameEncoder,
    y: NDArray[np.int64],
    group: NDArray[np.int64],
    prob: NDArray[np.float64],
) -> AuditTable:
    """Sum up rows of known label and group, both as positions, for `measure`."""
    from equipoise.metrics import AuditTable

    places = range(len(encoder.class_names))
    table = AuditTable.from_arrays(y, prob, sensitive_features=group, labels=places)
    groups = tuple(encoder.group_names[g] for g in table.groups)  # type: ignore[call-overload]
    return dataclasses.replace(table, groups=groups, labels=encoder.class_names)


def measure(
    encoder: FrameEncoder,
    label_counts: Sequence[Sequence[float]],
    table: AuditTable,
    reference: Hashable,
) -> AuditReport:
    """Report on rows; PE compares with the rates of the training labels.

    `label_counts` are the numbers of training rows (group, class).
    `reference` is the group that PE compares the others with: where it has no rows, the largest.
    """
    from equipoise._inputs import shown
    from equipoise.auditing import report_of
    from equipoise.metrics import GroupRates, largest_group

    counts = {
        name: dict(zip(encoder.class_names, own, strict=True))
        for name, own in zip(encoder.group_names, label_counts, strict=True)
        if name in table.groups
    }
    if reference not in counts:
        largest = largest_group(table)
        if len(counts) > 1:
            note(f"no row belongs to {shown(reference)}; PE compares with {shown(largest)}")
        reference = largest
    with notes(most=1):
        return report_of(table, base_rates=GroupRates.of_counts(counts), reference_group=reference)
