"""Audit tables filled by push-down: the engine that has the data adds up, a small table comes back.

One query, written once, runs on DuckDB, polars, pandas, PyArrow, PySpark and Ibis, and gives the
same sums as `AuditTable.from_arrays`, to the last bit.
"""

from equipoise.auditing._pushdown._survey import Columns
from equipoise.auditing._pushdown._tables import Filled, fill, rates_of

__all__ = ["Columns", "Filled", "fill", "rates_of"]
