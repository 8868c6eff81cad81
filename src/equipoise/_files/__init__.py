"""Files: the one reader of CSV and Parquet, the one writer, and model files.

What needs PyArrow is imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from equipoise._door import opened_late
from equipoise._files._atomic import replace_file, writing_to
from equipoise._files._duckdb import identifier, literal
from equipoise._files._json import (
    digest_of,
    parse_json,
    read_json,
    restoring,
    sealed,
    unsealed,
)
from equipoise._files._model_file import read_model, regular_file, write_model
from equipoise._files._open_tables import Opened, number, opened, reading
from equipoise._files._outputs import check_output
from equipoise._files._paths import (
    check_data,
    check_ending,
    check_path,
    is_parquet,
    is_path,
    pattern_of,
)
from equipoise._files._stamps import Stamp, stamps_of

if TYPE_CHECKING:
    from equipoise._files._batches import Reader, reader
    from equipoise._files._predictions import Faults, distinct, probabilities, texts
    from equipoise._files._write import safe_cell, write_batches

__all__ = [
    "Faults",
    "Opened",
    "Reader",
    "Stamp",
    "check_data",
    "check_ending",
    "check_output",
    "check_path",
    "digest_of",
    "distinct",
    "identifier",
    "is_parquet",
    "is_path",
    "literal",
    "number",
    "opened",
    "parse_json",
    "pattern_of",
    "probabilities",
    "read_json",
    "read_model",
    "reader",
    "reading",
    "regular_file",
    "replace_file",
    "restoring",
    "safe_cell",
    "sealed",
    "stamps_of",
    "texts",
    "unsealed",
    "write_batches",
    "write_model",
    "writing_to",
]

__getattr__, __dir__ = opened_late(__name__, __file__)
