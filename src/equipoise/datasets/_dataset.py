"""A dataset: features, labels and groups, with their names and where they come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.datasets._frame import FrameEncoder, fit_encoder
from equipoise.datasets._source import Source
from equipoise.datasets._split import Part, Preprocessor, Split, split_rows


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Dataset:
    """Features, labels and groups of one dataset.

    Attributes
    ----------
    X
        (row, feature) float32, raw: not scaled, NaN where a number is missing.
    feature_names
        Name of each column of `X`.
    y, group
        (row,) integers from 0 on.
    class_names, group_names
        What the values of `y` and `group` stand for.
    title, source, licence
        Where the data comes from.
    encoder
        Encodes new rows as `from_frame` encoded these; None for the datasets of `load`.
    """

    X: NDArray[np.float32]
    feature_names: tuple[str, ...]
    y: NDArray[np.int64]
    group: NDArray[np.int64]
    class_names: tuple[Hashable, ...]
    group_names: tuple[Hashable, ...]
    title: str
    source: str
    licence: str
    encoder: FrameEncoder | None = None

    def __repr__(self) -> str:
        rows, columns = self.X.shape
        return f"Dataset({self.title}: {rows:,} rows, {columns} features)"

    @classmethod
    def from_frame(
        cls,
        data: Any,
        *,
        label: str,
        group: str | Sequence[str],
        include_group: bool = False,
        drop: Sequence[str] = (),
        kinds: Mapping[str, str] | None = None,
        max_categories: int = 64,
        hash_columns: int = 32,
        title: str | None = None,
    ) -> Dataset:
        """Make a dataset from a table.

        Numbers are kept, NaN where missing (`split` imputes and flags); so are numbers written as
        text, such as 34,800.77. Dates become days since 1970-01-01, exact to three minutes. Text,
        categories and booleans become one column per value; a missing value counts as a value. A
        column of more than `max_categories` values is hashed, word by word. Row numbers, ids (all
        values differ) and columns of a single value are left out. `encoder.explained()` lists how
        each column was read; `kinds` overrules it.

        Parameters
        ----------
        data
            A pandas, polars or PyArrow table; or CSV or Parquet files: a path, a folder, a
            pattern, a list of paths, or `-` for standard input. CSV may be compressed (.gz, .zst).
        label
            Column with the label, of any coding.
        group
            Sensitive column; several mean their intersection.
        include_group
            Whether the sensitive columns are features too.
        drop
            Columns that are no features.
        kinds
            Kind of a column, by its name, instead of the one that its values suggest: "number",
            "category", "text" (hashed), "date" or "drop".
        max_categories, hash_columns
            Number of distinct values above which a column is hashed, and the number of columns it
            is hashed to.
        title
            Name of the dataset; by default that of the file.

        Examples
        --------
        >>> import polars as pl
        >>> frame = pl.DataFrame({"age": [30, 41, 25], "job": ["cook", "smith", "cook"],
        ...                       "sex": ["f", "m", "f"], "paid": ["yes", "no", "no"]})
        >>> data = Dataset.from_frame(frame, label="paid", group="sex")
        >>> data.feature_names, data.class_names, data.group_names
        (('age', 'job=cook', 'job=smith'), ('no', 'yes'), ('f', 'm'))
        >>> data.encoder.transform(pl.DataFrame({"age": [50], "job": ["smith"]}))
        array([[50.,  0.,  1.]], dtype=float32)
        """
        table = Source.of(data)
        encoder = fit_encoder(
            table,
            label=label,
            group=(group,) if isinstance(group, str) else tuple(group),
            include_group=include_group,
            drop=drop,
            kinds=kinds,
            max_categories=max_categories,
            hash_columns=hash_columns,
        )
        path = Path(table.title).name
        return cls(
            X=encoder.transform(table),
            feature_names=encoder.feature_names,
            y=encoder.labels(table),
            group=encoder.groups(table),
            class_names=encoder.class_names,
            group_names=encoder.group_names,
            title=title or path or "table",
            source=path,
            licence="",
            encoder=encoder,
        )

    def split(self, seed: int, *, stratify: bool = False) -> Split:
        """Split the rows 6:1:1 into training, validation and test; the same seed, the same rows.

        Test has n / 8 rows rounded up, validation n // 8. With `stratify`, each part has its share
        of every label in every group. Missing values are imputed and flagged and all features
        standardised, as fitted on the training part.
        """
        cells = self.group * len(self.class_names) + self.y if stratify else None
        parts = split_rows(len(self.y), seed, cells)
        preprocessor = Preprocessor.fit(self.X[parts[0]], self.feature_names)
        train, val, test = (
            Part(preprocessor.transform(self.X[rows]), self.y[rows], self.group[rows], rows)
            for rows in parts
        )
        return Split(train, val, test, preprocessor)
