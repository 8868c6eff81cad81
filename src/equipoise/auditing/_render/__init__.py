"""An audit in words and tables: for the terminal, for notebooks and as plain values.

The reports come from the layer above, so their class is not named here.
"""

from equipoise.auditing._render._notebook import as_html
from equipoise.auditing._render._plain import as_plain
from equipoise.auditing._render._terminal import Rendered, as_text, side_by_side

__all__ = ["Rendered", "as_html", "as_plain", "as_text", "side_by_side"]
