"""The methods `to_sql` and `to_onnx` of estimators."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from equipoise.calibration._export import Exportable
from equipoise.calibration._export_onnx import to_onnx
from equipoise.calibration._export_sql import SqlExport, to_sql
from equipoise.calibration._onnx_graph import OnnxGraph, onnx_engine
from equipoise.calibration._sql_trees import sqlglot_expressions


def check_export(kind: str) -> None:
    """Raise, before any work, if a library that an export to "sql" or "onnx" needs is missing."""
    if kind == "sql":
        sqlglot_expressions()
    else:
        OnnxGraph()
        onnx_engine()


class Exported:
    """Give an estimator `to_sql` and `to_onnx`; a subclass has `_exportable`."""

    def _exportable(self) -> Exportable:
        raise NotImplementedError

    def to_sql(
        self,
        dialect: str = "duckdb",
        *,
        prob: str | Sequence[str] | None = None,
        group: str | Sequence[str] | None = None,
    ) -> SqlExport:
        """Return the calibrators as SQL expressions, verified in DuckDB.

        DuckDB runs them on a grid of scores and groups, with 0, 1 and a new group. If a number
        differs from Python's by more than 1e-12, that is an `ExportError`. Text in another dialect
        is written from the same expressions, but not run. The result says which.

        A row whose group is new or missing falls under `unseen_group`. Under "error", the query
        fails in DuckDB, BigQuery and Spark, and the row gets NULL in PostgreSQL and Snowflake. A
        row without valid scores gets NULL.

        Parameters
        ----------
        dialect
            "duckdb", "postgres", "bigquery", "snowflake" or "spark".
        prob
            Columns with the scores that `predict_proba` takes, one for each class, or a single one
            for the second of two. By default "p", or "p_LABEL" of each of several labels; "logit"
            instead of "p" where scores are logits.
        group
            Group columns; by default "group", or "group_1", "group_2" and so on. They hold the same
            values as when fitting, of the same type.
        """
        return to_sql(self._exportable(), dialect, prob, group)

    def to_onnx(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        group: str | Sequence[str] | None = None,
    ) -> Any:
        """Return the calibrators as an ONNX model of doubles, verified in onnxruntime.

        onnxruntime runs it on the grid of `to_sql`. If a number differs from Python's by more than
        1e-6, that is an `ExportError`, and nothing is written.

        The input "scores" is (n, K), or (n, 1) for the second of two classes; each group column is
        an input of strings (n,), numbers written as 1 or 0.5 and truth values as true or false. The
        output "probabilities" is (n, K). A row whose group is new or missing (the empty string)
        falls under `unseen_group`, and "error" is NaN. A row without valid scores gets NaN.

        Parameters
        ----------
        path
            File to write, whole or not at all.
        group
            Names of the group inputs; by default "group", or "group_1", "group_2" and so on.

        Returns
        -------
        The `onnx.ModelProto`. Its metadata hold classes, groups and the policy, as JSON.
        """
        return to_onnx(self._exportable(), path, group)
