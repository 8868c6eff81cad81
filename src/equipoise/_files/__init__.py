"""Files: the one reader of CSV and Parquet, the one writer, and model files.

What needs PyArrow is imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from equipoise._door import opened_late
from equipoise._files._atomic import replace_file, writing_to
from equipoise._files._model_file import read_model, write_model
from equipoise._files._open_tables import Opened, number, opened, reading
from equipoise._files._paths import check_ending, is_parquet, is_path

if TYPE_CHECKING:
    from equipoise._files._batches import Reader, reader
    from equipoise._files._predictions import Faults, distinct, probabilities, texts
    from equipoise._files._write import write_batches

__all__ = [
    "Faults",
    "Opened",
    "Reader",
    "check_ending",
    "distinct",
    "is_parquet",
    "is_path",
    "number",
    "opened",
    "probabilities",
    "read_model",
    "reader",
    "reading",
    "replace_file",
    "texts",
    "write_batches",
    "write_model",
    "writing_to",
]

__getattr__, __dir__ = opened_late(__name__, __file__)
