"""Labels, groups, probabilities and weights as callers pass them, and every error about them."""

from equipoise._inputs._categories import (
    MOST_GROUPS,
    decode,
    encode,
    encode_groups,
    recode,
    refuse_missing,
    too_many_groups,
)
from equipoise._inputs._columns import column, column_names, columns, named_columns, same_length
from equipoise._inputs._errors import ColumnOrderWarning, InputError, InputWarning, warn_caller
from equipoise._inputs._extras import need
from equipoise._inputs._features import split_columns
from equipoise._inputs._labels import column_labels, encode_labels
from equipoise._inputs._names import alternatives, check_column, counted, printable, shown
from equipoise._inputs._probabilities import (
    NOT_ONE,
    NOT_WITHIN,
    ROW_SUM_TOLERANCE,
    check_bins,
    check_clusters,
    check_numbers,
    check_weights,
    class_count,
    encode_clusters,
    matrix,
    probability_faults,
    probability_slice,
)
from equipoise._inputs._values import MISSING, from_plain, match, text_of, to_plain, typed

__all__ = [
    "MISSING",
    "MOST_GROUPS",
    "NOT_ONE",
    "NOT_WITHIN",
    "ROW_SUM_TOLERANCE",
    "ColumnOrderWarning",
    "InputError",
    "InputWarning",
    "alternatives",
    "check_bins",
    "check_clusters",
    "check_column",
    "check_numbers",
    "check_weights",
    "class_count",
    "column",
    "column_labels",
    "column_names",
    "columns",
    "counted",
    "decode",
    "encode",
    "encode_clusters",
    "encode_groups",
    "encode_labels",
    "from_plain",
    "match",
    "matrix",
    "named_columns",
    "need",
    "printable",
    "probability_faults",
    "probability_slice",
    "recode",
    "refuse_missing",
    "same_length",
    "shown",
    "split_columns",
    "text_of",
    "to_plain",
    "too_many_groups",
    "typed",
    "warn_caller",
]
