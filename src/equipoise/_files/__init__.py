"""Files: the one reader of CSV and Parquet, the one writer, and model files.

What needs PyArrow is imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_LATER = {
    "Faults": "_predictions",
    "Reader": "_batches",
    "distinct": "_predictions",
    "probabilities": "_predictions",
    "reader": "_batches",
    "texts": "_predictions",
    "write_batches": "_write",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
