"""Files of predictions, CSV or Parquet, one or many, opened by an engine without reading them.

Every engine sees the same: the columns of a CSV file are text, and beside each column that must
hold numbers stands one with those numbers, empty where the text is none. What an engine says of a
file that it cannot read comes out as a ValueError that names the file.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import glob
import os
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import narwhals as nw

ENGINES = ("duckdb", "polars", "spark")
CSV = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")


@dataclasses.dataclass(frozen=True)
class Opened:
    """A table that an engine is ready to read.

    Attributes
    ----------
    frame
        A narwhals frame, eager or lazy.
    name
        How messages call it.
    is_file, is_text
        Whether it is made of files, and whether those are CSV.
    rows
        Number of rows, where that is known without reading them.
    """

    frame: Any
    name: str
    is_file: bool = False
    is_text: bool = False
    rows: int | None = None


def number(name: str) -> str:
    """Return the name of the column with the numbers of a column of text."""
    return f"{name} as a number"


@contextlib.contextmanager
def opened(data: Any, engine: str = "duckdb", numbers: Sequence[str] = ()) -> Iterator[Opened]:
    """Open a frame that narwhals takes, or a path, glob, folder or list of paths.

    Parameters
    ----------
    data
        The table. Files are read by `engine`, frames by their own.
    engine
        "duckdb", "polars" or "spark".
    numbers
        Columns whose text, in a CSV file, must be numbers.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if not _is_path(data):
        with reading("the table"):
            frame = nw.from_native(data, pass_through=True)
            if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
                raise TypeError(
                    "pass a table (pandas, polars, PyArrow, DuckDB, PySpark, Ibis) or the path of "
                    f"a CSV or Parquet file, not {type(data).__name__}"
                )
            yield Opened(frame, "the table")
        return
    paths = _paths(data)
    name = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    is_text = _kind(paths) == "csv"
    separator, names = _header(paths) if is_text else (",", [])
    numbers = [n for n in dict.fromkeys(numbers) if n in names]
    taken = [n for n in names if n.casefold() in {number(own).casefold() for own in numbers}]
    if taken:
        raise ValueError(
            f"{name} has a column named {taken[0]!r}, which is a name used here; rename it"
        )
    with contextlib.ExitStack() as stack, reading(name):
        rows = None if is_text else _check_schemas(paths)
        open_with = {"duckdb": _duckdb, "polars": _polars, "spark": _spark}[engine]
        native = open_with(paths, names, separator, numbers, stack)
        yield Opened(nw.from_native(native), name, is_file=True, is_text=is_text, rows=rows)


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn an engine's own exceptions into a ValueError of one line that names the table."""
    try:
        yield
    except (ValueError, TypeError, FileNotFoundError, ModuleNotFoundError) as error:
        if _is_own(error):
            raise
        if "unhashable" in str(error):
            raise TypeError(
                f"{name} has lists or arrays where groups or labels should be; "
                "name columns of numbers, text or truth values"
            ) from error
        raise ValueError(f"{name} cannot be read: {_in_one_line(error)}") from error
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        raise ValueError(f"{name} cannot be read: {_in_one_line(error)}") from error


def _is_own(error: BaseException) -> bool:
    """Say whether an exception was raised in this package, not in a library called by it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
    return str(module).split(".")[0] == "equipoise"


def _in_one_line(error: BaseException) -> str:
    """Return what an engine says, without the stack of its own calls."""
    # nor its advice, which names options that are not ours
    end = r"\n\s*(?:at |== SQL|JVM stacktrace|LINE \d|Resolved plan)|(?i:possible (?:fix|solution))"
    text = re.split(end + r"|Consider (?:setting|using)|You might want", str(error))[0]
    text = " ".join(text.split())
    return text if len(text) <= 400 else text[:400] + " ..."


# --- paths -----------------------------------------------------------------------------------


def _is_path(data: Any) -> bool:
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(d, str | os.PathLike) for d in data)
    return isinstance(data, str | os.PathLike)


def _paths(data: Any) -> list[str]:
    """Return the files that a path, glob or folder, or a list of them, stands for."""
    found: list[str] = []
    for one in data if isinstance(data, list | tuple) else [data]:
        text = os.fspath(one)
        if "://" in text:  # for the engine to find
            found.append(text)
        elif Path(text).is_dir():
            inside = sorted(p for p in Path(text).rglob("*") if _is_data(p, Path(text)))
            if not inside:
                raise FileNotFoundError(
                    f"the folder {text} has no files ending in {', '.join(PARQUET + CSV)}"
                )
            found += map(str, inside)
        elif Path(text).exists():
            found.append(text)
        else:
            if not glob.has_magic(text):
                raise FileNotFoundError(f"there is no file or folder {text}")
            matches = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - may be absolute
            if not matches:
                raise FileNotFoundError(f"no file matches {text}")
            found += [m for m in matches if not Path(m).is_dir()] or _paths(matches)
    return found


def _is_data(path: Path, folder: Path) -> bool:
    # Spark and others keep notes in files and folders that begin like this
    hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    return not hidden and path.suffix.lower() in PARQUET + CSV and path.is_file()


def _kind(paths: Sequence[str]) -> str:
    kinds: dict[str, str] = {}
    for path in paths:
        ending = Path(path).suffix.lower()
        if ending not in PARQUET + CSV:
            raise ValueError(f"{path} is neither .csv (.tsv, .txt) nor .parquet")
        kinds.setdefault("csv" if ending in CSV else "parquet", path)
    if len(kinds) > 1:
        raise ValueError(
            f"{kinds['csv']} is CSV and {kinds['parquet']} is Parquet; audit them one by one and "
            "add the tables, or convert one of them"
        )
    return next(iter(kinds))


def _header(paths: Sequence[str]) -> tuple[str, list[str]]:
    """Return the separator, the one that the header has most of, and the names of the columns."""
    first: tuple[str, list[str]] | None = None
    for path in paths:
        if "://" in path:
            raise ValueError(f"{path} is a remote CSV file; copy it here, or use Parquet")
        try:
            with Path(path).open(encoding="utf-8-sig", newline="") as file:
                separator = max(",;\t", key=file.readline().count)
                file.seek(0)
                row = next(csv.reader(file, delimiter=separator, skipinitialspace=True), [])
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from None
        except (OSError, csv.Error) as error:
            raise ValueError(f"{path} cannot be read: {_in_one_line(error)}") from None
        names = [name.strip() for name in row]
        if not any(names):
            raise ValueError(f"{path} is empty; a CSV file begins with the names of its columns")
        _refuse_twins(path, [name for name in names if name])
        if first is None:
            first = separator, names
        elif first != (separator, names):
            raise ValueError(
                f"{path} and {paths[0]} have different columns; give both the same header"
            )
    assert first is not None
    # a column without a name is that of the row numbers, as pandas writes them
    return first[0], [name or f"column {i}" for i, name in enumerate(first[1])]


def _refuse_twins(path: str, names: Sequence[str]) -> None:
    """Refuse columns of the same name; to DuckDB and Spark p and P are the same."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        seen[name.casefold()] = name
        if other is None:
            continue
        if other == name:
            raise ValueError(f"{path} has several columns named {name!r}; rename all but one")
        raise ValueError(
            f"{path} has columns named {other!r} and {name!r}, which databases take for one; "
            "rename one of them"
        )


def _check_schemas(paths: Sequence[str]) -> int:
    """Refuse damaged Parquet files, and types that differ from file to file; count the rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first: dict[str, Any] = {}
    rows = 0
    for path in paths:
        if "://" in path:
            continue
        try:
            metadata = pq.read_metadata(path)
            schema = metadata.schema.to_arrow_schema()
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"{path} cannot be read as Parquet, it is damaged or cut short: "
                f"{_in_one_line(error)}"
            ) from None
        names = schema.names
        _refuse_twins(path, names)
        first = first or {name: schema.field(name).type for name in names}
        for name, kind in first.items():
            own = schema.field(name).type if name in names else "not there"
            # the first file's type would be forced on the others: 0.5 would become 0
            if own != kind:
                raise ValueError(
                    f"column {name!r} is {kind} in {paths[0]} and {own} in {path}; "
                    "write both with the same columns and types"
                )
        rows += metadata.num_rows
    return rows


# --- engines ---------------------------------------------------------------------------------


def _library(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"engine {name!r} needs {name}: pip install {extra}", name=name
        ) from None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _duckdb(
    paths: Sequence[str],
    names: Sequence[str],
    separator: str,
    numbers: Sequence[str],
    stack: contextlib.ExitStack,
) -> Any:
    import duckdb

    connection = stack.enter_context(duckdb.connect())
    connection.execute("SET enable_progress_bar = false")
    files = "[" + ", ".join(map(_quoted, paths)) + "]"
    if not names:
        return connection.sql(f"SELECT * FROM read_parquet({files}, hive_partitioning = false)")
    columns = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in names)
    parsed = "".join(
        f", TRY_CAST(trim({_identifier(n)}) AS DOUBLE) AS {_identifier(number(n))}" for n in numbers
    )
    return connection.sql(
        f"SELECT *{parsed} FROM read_csv({files}, columns = {{{columns}}}, auto_detect = false, "
        f"""header = true, delim = {_quoted(separator)}, quote = '"', escape = '"', """
        "hive_partitioning = false)"
    )


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _polars(
    paths: Sequence[str],
    names: Sequence[str],
    separator: str,
    numbers: Sequence[str],
    stack: contextlib.ExitStack,  # noqa: ARG001
) -> Any:
    pl = _library("polars", "polars")
    if not names:
        return pl.scan_parquet(list(paths), hive_partitioning=False, glob=False)
    frame = pl.scan_csv(
        list(paths), separator=separator, infer_schema=False, glob=False, new_columns=list(names)
    )
    # polars makes a row of an empty line, the others do not
    frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    return frame.with_columns(
        pl.col(n).str.strip_chars().cast(pl.Float64, strict=False).alias(number(n)) for n in numbers
    )


def _spark(
    paths: Sequence[str],
    names: Sequence[str],
    separator: str,
    numbers: Sequence[str],
    stack: contextlib.ExitStack,  # noqa: ARG001
) -> Any:
    spark = _session()
    local = [p if "://" in p else Path(p).resolve().as_uri() for p in paths]
    if not names:
        return spark.read.option("recursiveFileLookup", "true").parquet(*local)
    functions = import_module("pyspark.sql.functions")
    kinds = import_module("pyspark.sql.types")
    schema = kinds.StructType([kinds.StructField(n, kinds.StringType()) for n in names])
    frame = spark.read.schema(schema).csv(
        local,
        sep=separator,
        header=True,
        quote='"',
        escape='"',
        multiLine=True,
        mode="FAILFAST",
        enforceSchema=True,
    )
    for n in numbers:
        trimmed = functions.trim(functions.col(f"`{n.replace('`', '``')}`"))
        frame = frame.withColumn(number(n), trimmed.try_cast("double"))
    return frame


def _session() -> Any:
    sql = _library("pyspark.sql", "'equipoise[spark]'")
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
