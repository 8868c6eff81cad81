"""Files: the one reader of CSV and Parquet, atomic writes, and model files."""

from equipoise._files._atomic import replace_file, writing_to
from equipoise._files._model_file import read_model, write_model
from equipoise._files._open_tables import Opened, number, opened

__all__ = [
    "Opened",
    "number",
    "opened",
    "read_model",
    "replace_file",
    "write_model",
    "writing_to",
]
