"""Tables in files, CSV or Parquet, one or many, opened by an engine without reading them.

Every engine sees the same table: the columns of a CSV file are text, and each column that must hold
numbers has a second one with the numbers, empty where the text is not a number. An engine's own
errors become a ValueError that names the file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import narwhals as nw

from equipoise._files._csv import (
    Layout,
    layout_of,
    refuse_malformed,
    refuse_surplus,
    refuse_twins,
    scan,
)
from equipoise._files._duckdb import connected, identifier, listed, load_extension, quoted
from equipoise._files._paths import File, Files, found, is_path, temporary_folder
from equipoise._inputs import need, shown

ENGINES = ("duckdb", "polars", "spark")


@dataclasses.dataclass(frozen=True)
class Opened:
    """A table that an engine is ready to read."""

    frame: Any  # a narwhals frame, eager or lazy
    name: str  # in messages
    is_file: bool = False
    is_text: bool = False  # whether its files are CSV
    rows: int | None = None  # where the number is known without reading them
    files: Sequence[File] = ()


def number(name: str) -> str:
    """Return the name of the column that holds the numbers of a text column."""
    return f"{name} as a number"


@contextlib.contextmanager
def opened(
    data: Any,
    engine: str = "duckdb",
    numbers: Sequence[str] = (),
    *,
    remote: bool = False,
) -> Iterator[Opened]:
    """Open a frame that narwhals takes, or a path, pattern, folder, list of paths or `-`.

    Files are read by `engine`, frames by their own. `numbers` are the columns that must hold
    numbers. With `remote` the engine fetches Parquet files from addresses.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if not is_path(data):
        with reading("the table"):
            frame = nw.from_native(data, pass_through=True)
            if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
                raise TypeError(
                    "pass a table (pandas, polars, PyArrow, DuckDB, PySpark, Ibis) or the path of "
                    f"a CSV or Parquet file, not {type(data).__name__}"
                )
            yield Opened(frame, "the table")
        return
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(found(data, remote=remote))
        layout = layout_of(files.each) if files.is_text else None
        rows = None if files.is_text else parquet_rows(files.each)
        stack.enter_context(reading(files.name, files, layout))
        if layout is not None:
            refuse_surplus(files.each, layout)
        open_with = {"duckdb": _duckdb, "polars": _polars, "spark": _spark}[engine]
        native = open_with(files, _Text.of(files, layout, numbers), stack)
        yield Opened(
            nw.from_native(native),
            files.name,
            is_file=True,
            is_text=files.is_text,
            rows=rows,
            files=files.each,
        )


@contextlib.contextmanager
def reading(name: str, files: Files | None = None, layout: Layout | None = None) -> Iterator[None]:
    """Turn an engine's own exceptions into a ValueError of one line that names the table.

    A CSV file is read once more to find its mistake and the line.
    """
    try:
        yield
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        if _is_own(error):
            raise
        if isinstance(error, TypeError) and "unhashable" in str(error):
            raise TypeError(
                f"{name} has lists or arrays where groups or labels should be; "
                "name columns of numbers, text or truth values"
            ) from error
        if files is not None and layout is not None:
            refuse_malformed(files.each, layout)
        said = _in_one_line(error, () if files is None else files.each)
        raise ValueError(f"{name} cannot be read: {said}") from error


def _is_own(error: BaseException) -> bool:
    """Say whether an exception was raised in this package, not in a library called by it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
    # a compiled library leaves no frame, but its exceptions are its own
    kinds = ("builtins", "equipoise")
    return str(module).startswith("equipoise") and type(error).__module__.startswith(kinds)


def _in_one_line(error: BaseException, files: Sequence[File] = ()) -> str:
    """Return what an engine says, without the stack of its own calls, nor temporary names."""
    # nor its advice, which names options that are not ours
    end = r"\n\s*(?:at |== SQL|JVM stacktrace|LINE \d|Resolved plan)|(?i:possible (?:fix|solution))"
    text = re.split(end + r"|Consider (?:setting|using)|You might want", str(error))[0]
    for file in files:
        text = text.replace(file.path, file.name)
    text = shown(" ".join(text.split()))
    return text if len(text) <= 400 else text[:400] + " ..."


def parquet_rows(files: Sequence[File]) -> int | None:
    """Count the rows; refuse damaged Parquet files, and types that differ from file to file.

    The number is None where an engine has yet to fetch a file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    first: dict[str, Any] = {}
    rows = 0
    for file in files:
        if file.is_remote:
            continue
        try:
            metadata = pq.read_metadata(file.path)
            schema = metadata.schema.to_arrow_schema()
        except (pa.ArrowException, OSError) as error:
            # an error of the system has a number, that of a damaged file has none
            system = error.strerror if isinstance(error, OSError) and error.errno else None
            how = "" if system else " as Parquet, it is damaged or cut short"
            said = system or _in_one_line(error, [file])
            raise ValueError(f"{file.name} cannot be read{how}: {said}") from None
        names = schema.names
        refuse_twins(file.name, names)
        first = first or {name: schema.field(name).type for name in names}
        for name, kind in first.items():
            own = schema.field(name).type if name in names else "not there"
            # the first file's type would be forced on the others: 0.5 would become 0
            if own != kind:
                raise ValueError(
                    f"column {name!r} is {kind} in {files[0].name} and {own} in {file.name}; "
                    "write both with the same columns and types"
                )
        rows += metadata.num_rows
    return None if any(file.is_remote for file in files) else rows


# --- engines ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Text:
    """CSV files: their layout, and the columns whose numbers are wanted beside the text."""

    layout: Layout
    numbers: Sequence[str]

    @classmethod
    def of(cls, files: Files, layout: Layout | None, numbers: Sequence[str]) -> _Text | None:
        if layout is None:
            return None
        wanted = [n for n in dict.fromkeys(numbers) if n in layout.names]
        hidden = {number(n).casefold() for n in wanted}
        if taken := [n for n in layout.names if n.casefold() in hidden]:
            raise ValueError(
                f"{files.name} has a column named {taken[0]!r}, a name that is used here; rename it"
            )
        return cls(layout, wanted)

    def query(self, files: Files) -> str:
        """Return the columns and the numbers, as DuckDB reads them."""
        parsed = "".join(
            f", TRY_CAST(trim({identifier(n)}) AS DOUBLE) AS {identifier(number(n))}"
            for n in self.numbers
        )
        return f"SELECT *{parsed} FROM {scan(files.each, self.layout)}"


def _duckdb(files: Files, text: _Text | None, stack: contextlib.ExitStack) -> Any:
    connection = stack.enter_context(connected())
    if text is not None:
        return connection.sql(text.query(files))
    for file in files.each:
        if file.is_remote:
            load_extension(connection, file.name)
    return connection.sql(
        f"SELECT * FROM read_parquet({listed(files.each)}, hive_partitioning = false)"
    )


def _polars(files: Files, text: _Text | None, stack: contextlib.ExitStack) -> Any:
    pl = need("polars", "polars", "1.30", what="engine 'polars'")
    paths = [file.path for file in files.each] if text is None else [_parsed(files, text, stack)]
    return pl.scan_parquet(paths, hive_partitioning=False, glob=False)


def _parsed(files: Files, text: _Text, stack: contextlib.ExitStack) -> str:
    """Parse CSV files with DuckDB, so that all engines see the same cells; return the Parquet."""
    path = str(temporary_folder(stack) / "table.parquet")
    with connected() as connection:
        connection.execute(f"COPY ({text.query(files)}) TO {quoted(path)} (FORMAT parquet)")
    return path


def _spark(files: Files, text: _Text | None, stack: contextlib.ExitStack) -> Any:
    spark = _session()
    # no columns from the names of folders
    reader = spark.read.option("recursiveFileLookup", "true")
    paths = [f.path if f.is_remote else f"file://{f.path}" for f in files.each]
    if text is None:
        return reader.parquet(*paths)
    if text.layout.has_returns or any(file.compression for file in files.each):
        # Spark changes line ends within quotes
        return reader.parquet(f"file://{_parsed(files, text, stack)}")
    with connected() as connection:
        # Spark fills short rows up, and reads on after a quote that is not closed
        connection.execute(f"SELECT count(*) FROM {scan(files.each, text.layout)}").fetchall()
    functions = import_module("pyspark.sql.functions")
    kinds = import_module("pyspark.sql.types")
    schema = kinds.StructType([kinds.StructField(n, kinds.StringType()) for n in text.layout.names])
    frame = reader.schema(schema).csv(
        paths,
        sep=text.layout.separator,
        header=True,
        quote='"',
        escape='"',
        multiLine=True,
        mode="FAILFAST",
        enforceSchema=True,
    )
    for n in text.numbers:
        trimmed = functions.trim(functions.col(f"`{n.replace('`', '``')}`"))
        frame = frame.withColumn(number(n), trimmed.try_cast("double"))
    return frame


def _session() -> Any:
    sql = need("pyspark.sql", "spark", "4.0", what="engine 'spark'")
    active = sql.SparkSession.getActiveSession()
    if active is not None:
        return active
    try:
        return (
            sql.SparkSession.builder.appName("equipoise")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
    except Exception as error:
        raise ValueError(
            f"Spark cannot be started: {_in_one_line(error)}; it needs Java 17 or later, found by "
            "JAVA_HOME or PATH"
        ) from None
