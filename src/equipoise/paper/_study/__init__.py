"""The decisive study: a design registered before its runs, and verdicts with stated errors."""

from equipoise.paper._study._page import claim_table, write_page
from equipoise.paper._study._reproduce import (
    chosen_studies,
    reproduce_study,
    saved_studies,
    study_folder,
)

__all__ = [
    "chosen_studies",
    "claim_table",
    "reproduce_study",
    "saved_studies",
    "study_folder",
    "write_page",
]
