"""Which datasets there are, where their files come from, and how a file is found and checked.

A file is taken from the folder that the caller names (`data_dir` or `EQUIPOISE_DATA`), else from
the package where it is carried, else from the user's cache, else from its public address. Whatever
does not have the SHA-256 written here is refused.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
from importlib import resources
from pathlib import Path

from equipoise._inputs import alternatives

ENVIRONMENT = "EQUIPOISE_DATA"
"""Environment variable that names a local folder, as `data_dir` does."""


@dataclasses.dataclass(frozen=True)
class RawFile:
    """One file as its public source publishes it."""

    name: str
    address: str
    sha256: str
    licence: str
    citation: str
    carried: bool = False


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Rows, columns of X, Pr[A=1], and Pr[Y=1|A] of the groups 0 and 1."""

    rows: int
    columns: int
    share: float
    rates: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One dataset: its files, and what its recipe makes of them.

    `classes` are the meanings of y = 0 and 1. `groups` are the sensitive groups on offer, the
    default first, each with the meanings of its 0 and 1; `statistics` are those of the default
    group, and `paper` those in the paper's Table 2.
    """

    title: str
    files: tuple[str, ...]
    classes: tuple[str, str]
    groups: dict[str, tuple[str, str]]
    statistics: Statistics
    paper: Statistics | None
    note: str


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_GERRYFAIR = (
    "https://raw.githubusercontent.com/algowatchpenn/GerryFair/"
    "e007abe5e9409b87de6189a92ce71d6b2fb21bb6/dataset/"
)
_SAMPLE = "as published with M. Kearns, S. Neel, A. Roth, Z. S. Wu: GerryFair"
_ADULT = "B. Becker, R. Kohavi: Adult, UCI 1996, doi.org/10.24432/C5XW20"

FILES = {
    file.name: file
    for file in (
        RawFile(
            "adult.csv",
            _GERRYFAIR + "adult.csv",
            "818aa253a4042197373adfe1e0ef4439d95481abe10333d61cfffc8774267bab",
            "CC BY 4.0 (UCI), MIT (GerryFair)",
            f"{_ADULT}; a label-balanced sample, {_SAMPLE}",
        ),
        RawFile(
            "adult.data",
            _UCI + "adult/adult.data",
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            "CC BY 4.0",
            _ADULT,
            carried=True,
        ),
        RawFile(
            "adult.test",
            _UCI + "adult/adult.test",
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            "CC BY 4.0",
            _ADULT,
            carried=True,
        ),
        RawFile(
            "arrhythmia.data",
            _UCI + "arrhythmia/arrhythmia.data",
            "a7f0f4ca289a4c58b5ed85a9adb793189acd38425828ce3dfbb70adb45f30169",
            "CC BY 4.0",
            "H. A. Guvenir, B. Acar, H. Muderrisoglu, R. Quinlan: Arrhythmia, UCI 1997, "
            "doi.org/10.24432/C5BS32",
        ),
        RawFile(
            "communities.csv",
            _GERRYFAIR + "communities.csv",
            "babba5f97ea1e25f88b5b244af3a855f23fe04a474d826b3159b5f321bf31c62",
            "CC BY 4.0 (UCI), MIT (GerryFair)",
            "M. Redmond: Communities and Crime, UCI 2002, doi.org/10.24432/C53W3X; "
            f"label binarised, {_SAMPLE}",
        ),
        RawFile(
            "compas-scores-two-years.csv",
            "https://raw.githubusercontent.com/propublica/compas-analysis/master/"
            "compas-scores-two-years.csv",
            "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
            "published for public use",
            "J. Larson, S. Mattu, L. Kirchner, J. Angwin: How We Analyzed the COMPAS Recidivism "
            "Algorithm, ProPublica 2016, github.com/propublica/compas-analysis",
            carried=True,
        ),
        RawFile(
            "drug_consumption.data",
            _UCI + "00373/drug_consumption.data",
            "90b8cf500b07ad455baf9fe1dc519998c75a1df6d87f6bd7069176f0826ea8c1",
            "CC BY 4.0",
            "E. Fehrman, V. Egan, E. Mirkes: Drug Consumption (Quantified), UCI 2015, "
            "doi.org/10.24432/C5TC7S",
        ),
        RawFile(
            "german.data",
            _UCI + "statlog/german/german.data",
            "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
            "CC BY 4.0",
            "H. Hofmann: Statlog (German Credit Data), UCI 1994, doi.org/10.24432/C5NC77",
            carried=True,
        ),
        RawFile(
            "lawschool.csv",
            _GERRYFAIR + "lawschool.csv",
            "7bc6ada636067f0613cbdc2e42db766684ca8fe32189006d315d84fbd8e1ef1a",
            "MIT (GerryFair)",
            "L. F. Wightman: LSAC National Longitudinal Bar Passage Study, 1998; "
            f"a label-balanced sample, {_SAMPLE}",
        ),
    )
}

ENTRIES = {
    "adult": Entry(
        "Adult",
        ("adult.csv",),
        ("income up to 50,000", "income above 50,000"),
        {"sex": ("Female", "Male")},
        Statistics(2020, 97, 0.742, (0.255, 0.586)),
        Statistics(2020, 97, 0.74, (0.25, 0.59)),
        "A label-balanced sample of the census. Sex itself is left out of X.",
    ),
    "arrhythmia": Entry(
        "Arrhythmia",
        ("arrhythmia.data",),
        ("arrhythmia", "normal"),
        {"sex": ("male", "female")},
        Statistics(452, 278, 0.551, (0.419, 0.643)),
        Statistics(452, 279, 0.55, (0.41, 0.65)),
        "Heart rhythm from electrocardiograms. Sex itself is left out of X; '?' is missing.",
    ),
    "communities": Entry(
        "Communities and Crime",
        ("communities.csv",),
        ("high crime", "low crime"),
        {"race": ("not majority white", "majority white")},
        Statistics(1994, 122, 0.718, (0.352, 0.848)),
        Statistics(1994, 122, 0.71, (0.36, 0.84)),
        "Majority white: the share of whites is at least that of blacks, Asians and Hispanics.",
    ),
    "compas": Entry(
        "COMPAS",
        ("compas-scores-two-years.csv",),
        ("recidivism within two years", "no recidivism"),
        {"race": ("Caucasian", "African-American")},
        Statistics(5278, 10, 0.602, (0.609, 0.477)),
        Statistics(5278, 11, 0.60, (0.61, 0.49)),
        "ProPublica's filter and its two largest groups. Race is one of the columns of X.",
    ),
    "drug": Entry(
        "Drug consumption",
        ("drug_consumption.data",),
        ("has used ketamine", "never used ketamine"),
        {"ethnicity": ("not white", "white")},
        Statistics(1885, 12, 0.912, (0.824, 0.787)),
        Statistics(1885, 10, 0.91, (0.83, 0.79)),
        "The label is ketamine. Ethnicity is one of the columns of X.",
    ),
    "german": Entry(
        "German credit",
        ("german.data",),
        ("bad credit", "good credit"),
        {"age": ("under 25", "25 or older"), "gender": ("female", "male")},
        Statistics(1000, 60, 0.851, (0.591, 0.719)),
        Statistics(1000, 20, 0.85, (0.60, 0.72)),
        "The paper's text says gender, its numbers are those of age. By age, age is left out of X; "
        "by gender, the personal status that gives it away.",
    ),
    "lawschool": Entry(
        "Law school",
        ("lawschool.csv",),
        ("failed the bar", "passed the bar"),
        {"gender": ("gender = 1", "gender = 0")},
        Statistics(1823, 17, 0.548, (0.506, 0.538)),
        Statistics(1823, 17, 0.54, (0.51, 0.55)),
        "A label-balanced sample. Gender is one of the columns of X; the source does not say "
        "which of its codes is which.",
    ),
    "adult-full": Entry(
        "Adult, full",
        ("adult.data", "adult.test"),
        ("income up to 50,000", "income above 50,000"),
        {"sex": ("Female", "Male")},
        Statistics(48842, 106, 0.668, (0.109, 0.304)),
        None,
        "The whole UCI dataset, training rows first, by the recipe of adult; not in the paper.",
    ),
}


def entry_of(name: str) -> Entry:
    """Return the entry of a dataset, or raise and list the known names."""
    if name not in ENTRIES:
        raise ValueError(f"unknown dataset {name!r}; {alternatives(name, list(ENTRIES))}")
    return ENTRIES[name]


# --- files -----------------------------------------------------------------------------------


def cache_dir() -> Path:
    """Return the user's cache folder, which need not exist."""
    import pooch

    return Path(pooch.os_cache("equipoise"))


def _named_dir(data_dir: str | os.PathLike[str] | None) -> Path | None:
    named = data_dir if data_dir is not None else os.environ.get(ENVIRONMENT)
    return Path(named).expanduser() if named else None


STATES = ("corrupt", "missing", "to be fetched", "local folder", "cached", "carried")


def state(name: str, data_dir: str | os.PathLike[str] | None = None) -> str:
    """Say where a dataset would come from, without fetching it.

    One of `STATES`; of several files the first that applies. "missing" files are not in the local
    folder; "corrupt" ones are there but differ from the published file.
    """
    found = {_located(FILES[file], _named_dir(data_dir))[0] for file in entry_of(name).files}
    return min(found, key=STATES.index)


def _located(file: RawFile, folder: Path | None) -> tuple[str, Path]:
    """Return the state of a file, and its path in the local folder or the cache."""
    path = (folder or cache_dir()) / file.name
    local = folder is not None and path.is_file()
    if file.carried and not local:
        return "carried", path
    if folder and not local:
        return "missing", path
    intact = path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
    if local:
        return ("local folder" if intact else "corrupt"), path
    # a damaged file in the cache is fetched again
    return ("cached" if intact else "to be fetched"), path


def read_lines(file: RawFile, data_dir: str | os.PathLike[str] | None = None) -> list[str]:
    """Return the lines of a file, fetched into the cache where it is nowhere else."""
    where, path = _located(file, _named_dir(data_dir))
    if where == "corrupt":
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        raise ValueError(
            f"{path} is not the published file: its SHA-256 is {found}, not {file.sha256}; replace "
            f"it by {file.address}"
        )
    if where == "missing":
        raise FileNotFoundError(
            f"{file.name} is not in {path.parent}; {_remedy(file, path.parent)}, or name no folder "
            f"(data_dir, {ENVIRONMENT}) to have it downloaded"
        )
    if where == "carried":
        packed = resources.files("equipoise").joinpath("data", f"{file.name}.gz").read_bytes()
        return gzip.decompress(packed).decode().splitlines()
    content = _fetched(file) if where == "to be fetched" else path.read_bytes()
    return content.decode().splitlines()


def _remedy(file: RawFile, folder: Path) -> str:
    return f"put {file.address} (SHA-256 {file.sha256}) into {folder}"


def _fetched(file: RawFile) -> bytes:
    import pooch

    folder = cache_dir()
    try:
        # written under a temporary name, checked, then renamed: the cache never holds half a file
        path = pooch.retrieve(file.address, f"sha256:{file.sha256}", file.name, folder)
    except ValueError as error:
        raise ValueError(
            f"{file.address} does not give the published file {file.name}, so it was thrown away "
            f"({error}); {_remedy(file, folder)} from elsewhere"
        ) from error
    except OSError as error:
        raise FileNotFoundError(
            f"{file.name} is not on this machine and could not be downloaded "
            f"({type(error).__name__}); {_remedy(file, folder)}, or into a folder of your own "
            f"that data_dir or {ENVIRONMENT} names"
        ) from error
    return Path(path).read_bytes()
