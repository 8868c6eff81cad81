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
from equipoise.paper._study import (
    chosen_studies,
    claim_table,
    reproduce_study,
    saved_studies,
    study_folder,
    write_page,
)

__all__ = [
    "SAFE",
    "check_folder",
    "chosen_studies",
    "chosen_sweeps",
    "claim_table",
    "heading",
    "main_tables",
    "reproduce_dataset",
    "reproduce_study",
    "rich_table",
    "saved_digests",
    "saved_studies",
    "study_folder",
    "write_page",
    "write_results",
]
