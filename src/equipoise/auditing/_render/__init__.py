"""An audit in words and tables: for the terminal, for notebooks and as plain values."""

from equipoise.auditing._render._notebook import as_html
from equipoise.auditing._render._plain import as_plain
from equipoise.auditing._render._terminal import all_models, as_text, with_parts

__all__ = ["all_models", "as_html", "as_plain", "as_text", "with_parts"]
