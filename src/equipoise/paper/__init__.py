"""The paper's experiments: its grids, its published tables, and both beside each other."""

from equipoise.paper._render import rich_table
from equipoise.paper._reproduce import (
    SAFE,
    check_folder,
    chosen_sweeps,
    reproduce_dataset,
    saved_digests,
)
from equipoise.paper._results import heading, main_tables, write_results

__all__ = [
    "SAFE",
    "check_folder",
    "chosen_sweeps",
    "heading",
    "main_tables",
    "reproduce_dataset",
    "rich_table",
    "saved_digests",
    "write_results",
]
