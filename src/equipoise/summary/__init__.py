"""An audit in words and tables: for the terminal, for notebooks and as plain values.

The reports come from the layer above, so their class is not named here.
"""

from equipoise.summary.notebook import as_html
from equipoise.summary.plain import as_plain
from equipoise.summary.terminal import Rendered, as_text, side_by_side

__all__ = ["Rendered", "as_html", "as_plain", "as_text", "side_by_side"]
