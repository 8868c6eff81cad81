"""Settings of `make docs`: README, guides, reference and the paper's results as a site.

The Markdown files stay where they are, so that their links work here as in the repository.
"""

import shutil
from pathlib import Path

from sphinx.application import Sphinx

import equipoise

project = "Equipoise"
version = release = equipoise.__version__
html_title = f"Equipoise {release}"
html_theme = "furo"
html_show_copyright = False

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "paper/results/*.md", "src/equipoise/data/README.md"]
myst_heading_anchors = 3
default_role = "code"
napoleon_use_ivar = True
autodoc_typehints = "none"  # the docstrings say what is expected
autodoc_member_order = "bysource"
# scikit-learn gives these to its estimators, and describes them
_REQUESTS = ("fit", "predict", "predict_proba", "score")
autodoc_default_options = {"exclude-members": ",".join(f"set_{m}_request" for m in _REQUESTS)}

CONTENTS = """
```{toctree}
:hidden:

docs/audit
docs/calibrate
docs/export
docs/repair
docs/search
docs/choice
docs/statements
docs/sweeps
docs/faults
docs/reference
paper/results/README
paper/results/METHODS
paper/results/REPLICA
CONTRIBUTING
SECURITY
CHANGELOG
src/equipoise/data/README
```
"""


def _add_contents(_: Sphinx, name: str, source: list[str]) -> None:
    """Give the README the list of all pages, which the repository does without."""
    if name == root_doc:
        source[0] += CONTENTS


def _make_index(app: Sphinx, error: Exception | None) -> None:
    """Show the README where a browser looks first."""
    if error is None:
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Connect both."""
    app.connect("source-read", _add_contents)
    app.connect("build-finished", _make_index)
