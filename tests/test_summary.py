"""What is printed: every group with its figures, whatever its name, in 80 columns and as HTML."""

import html
import html.parser
import io
import math
import re

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from equipoise import metrics
from equipoise.auditing import audit, report_of
from equipoise.auditing._render._lines import MOST_GROUPS, MOST_LINES
from equipoise.metrics import AuditTable

NAMES = [
    "[red]x[/red]",
    "[/]",
    "<script>",
    "<b>bold</b>",
    "a\\",
    ":smile:",
    "African-American, Female, 25 - 45",
    "é 漢字",
    "overall",
]


def predictions(groups, n=300, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    prob = rng.dirichlet(np.ones(classes), n)
    y = (prob.cumsum(1) < rng.random((n, 1))).sum(1)
    names = np.empty(len(groups), object)
    names[:] = groups
    return y, prob, names[np.arange(n) % len(groups)]


def report(groups, n=300, classes=2, **options):
    y, prob, group = predictions(groups, n, classes)
    return audit(y, prob, sensitive_features=group, labels=range(classes), **options)


def printed(found, width=80):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(found)
    return out.getvalue()


def line_of(text, group):
    """Return the line of the table of metrics; the table of rates starts with the class."""
    (line,) = [one for one in text.splitlines() if one.split("  ")[0].strip() == group]
    return line


@pytest.mark.parametrize("width", [80, 120])
def test_every_group_is_shown_with_its_figures(width):
    found = report(["x", "y", "z"], classes=3)
    text = printed(found, width)
    assert "300 rows, 3 groups (reference: x), 3 classes, 15 bins" in text
    lines = text.splitlines()
    shown = {"overall": (300, found.overall, found.intervals.overall)}
    shown |= {g: (100, found.groups[g], found.intervals.groups[g]) for g in "xyz"}
    for g, (count, values, ends) in shown.items():
        line = line_of(text, g)
        assert line.split() == [g, str(count), *(f"{v:.4f}" for v in values.values())]
        at = lines.index(line)
        for word, side in (("low", 0), ("high", 1)):
            cells = lines[at + 1 + side].split()
            assert cells == [word, *(f"{ends[m][side]:.4f}" for m in values)]
    assert f"{found.gaps['ece']:.4f}" in text
    for kind, value in found.proportional_equality.items():
        assert f"{value:.4f} {kind}" in " ".join(text.split())
    said = " ".join(text.split()).replace("- ", "")
    for verdict in (found.verdict, *found.verdicts.values()):
        assert verdict.text.replace("- ", "") in said
    for verdict in found.pe_verdicts.values():
        assert verdict.text[1:].replace("- ", "") in said
    for g in "xyz":
        rates = found.rates[g]
        cells = ["2", g, *(f"{rates[kind][2]:.4f}" for kind in rates)]
        assert cells in [line.split()[:5] for line in lines]
    for found_by_kind in found.amplification.values():
        for own in found_by_kind.values():
            for a in own.values():
                ends = f"{a.low:+.3f} to {a.high:+.3f}"
                # a narrow terminal may break the line
                assert f"{a.value:+.3f}" in text
                assert f"{a.value:+.3f} ({ends})" in text or width < 120
    assert "…" not in text
    note = " ".join(text.split())
    said = "widened so that those of all rows and of the 3 groups hold together."
    assert f"its 95% interval, {said}" in note


def test_text_is_what_is_printed():
    found = report(["x", "y"])
    assert repr(found) == str(found) == printed(found, 120)


@pytest.mark.parametrize("count", [1, 2, 12])
@pytest.mark.parametrize("intervals", [False, True])
def test_nothing_is_wider_than_the_terminal(count, intervals):
    groups = [*NAMES, "long" * 30, "many words " * 12, "x"][:count]
    text = printed(report(groups, n=600, intervals=intervals))
    assert max(cell_len(line) for line in text.splitlines()) <= 80


def test_a_narrow_terminal_names_the_metrics_it_leaves_out():
    y, prob, group = predictions(["x", "y"])
    table = AuditTable.from_arrays(y, prob, sensitive_features=group, labels=range(2))
    for _ in range(30):  # 322 billion rows: the column of rows grows to 15 characters
        table = table + table
    found = report_of(table)
    # of two classes, the class ECE comes first
    titles = {"classwise_ece": "class ECE"}
    titles |= {m: v.title for m, v in metrics.METRICS.items() if m not in titles}
    text = printed(found)
    head = text.splitlines()[1]
    shown = re.split(r"\s{2,}", head.strip())
    kept = [m for m, title in titles.items() if title in shown]
    gone = [title for m, title in titles.items() if m not in kept]
    assert kept == [m for m in titles if m != "debiased_squared_ece"]
    assert f"Not shown, the terminal is too narrow: {', '.join(gone)}" in text
    total = ["overall", f"{300 * 2**30:,}", *(f"{found.overall[m]:.4f}" for m in kept)]
    assert line_of(text, "overall").split() == total
    wide = printed(found, 120)
    assert "too narrow" not in wide
    assert all(title in wide.splitlines()[1] for title in titles.values())


@pytest.mark.parametrize("name", NAMES)
def test_names_of_groups_are_shown_literally(name):
    found = report([name, "y", "z"])
    lines = str(found).splitlines()
    assert sum(line.startswith(f"{name} ") for line in lines) == 1 + (name == "overall")
    assert sum(line.startswith(f"- {name}: ") for line in lines) == 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("a\tb\rc", "a\\tb\\rc"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202eevil", "\\u202eevil"),
    ],
)
def test_control_characters_are_escaped(name, shown):
    text = str(report([name, "z"]))
    assert name not in text
    assert text.isascii() or "\u202e" not in text
    line_of(text, shown)


def test_words_are_coloured_not_names():
    out = io.StringIO()
    found = report([": calibrated", "b"], n=4000)
    Console(file=out, width=200, force_terminal=True, color_system="standard").print(found)
    assert "\x1b[32mcalibrated\x1b[0m" in out.getvalue()


def test_several_columns_are_shown_joined():
    text = str(report([("x", 0), ("x", 1), ("y", 0)]))
    for name in ("x, 0", "x, 1", "y, 0"):
        line_of(text, name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_many_groups():
    found = report(list(range(60)), n=1200, reference_group=5)
    text = str(found)
    for g in range(60):
        assert [line for line in text.splitlines() if line.split()[:2] == [str(g), "20"]]
    assert f"and {60 - MOST_LINES} more" in text  # lines of the second class
    assert f"and {2 * 59 - MOST_LINES} more" in text  # amplifications of both classes
    found = report(list(range(150)), n=3000)
    text = str(found)
    assert "50 groups with smaller gaps are not shown" in text
    assert "50 groups with smaller gaps are not shown" in found._repr_html_()
    square = {g: v["debiased_squared_ece"] for g, v in found.groups.items()}
    worst = sorted(square, key=square.__getitem__)
    lines = [line.split()[:2] for line in text.splitlines()]
    assert [str(worst[-1]), "20"] in lines
    assert [str(worst[0]), "20"] not in lines
    figures = [line.split() for line in text.splitlines() if len(line.split()) == 9]
    assert sum(line[1] == "20" for line in figures) == MOST_GROUPS


def test_one_group():
    text = printed(report(["only"]))
    assert "300 rows, 1 group, 2 classes" in text
    assert "stochastic undefined" in text
    assert "there is only one" in " ".join(text.split())
    assert "nan" not in text
    assert "largest gap" not in text
    assert sum(line.startswith("- ") for line in text.splitlines()) == 2


def test_what_the_rates_are_is_said():
    own = report(["x", "y"])
    assert "0 is best; the rates are those of these labels" in str(own)
    y, prob, group = predictions(["x", "y"])
    rates = metrics.group_base_rates(1 - y, sensitive_features=group)
    given = audit(y, prob, sensitive_features=group, base_rates=rates)
    oracle = given.pe_verdicts["stochastic"].oracle
    assert oracle > 0
    said = " ".join(str(given).split())
    assert f"the labels themselves score {oracle:.4f}" in said


def test_parts_and_rows_left_out():
    y, prob, group = predictions(["x", "y"])
    y = y.astype(object)
    y[0] = None
    found = audit(
        y,
        prob,
        sensitive_features=group,
        by=[f"month {i % 3}" for i in range(300)],
        drop_missing=True,
    )
    text = str(found)
    assert "299 rows" in text
    assert "1 row left out" in text
    for (key,), part in found.by.items():
        cells = line_of(text, key).split()[1:]
        assert cells[1] == f"{int(part.table['rows'].sum())}"
        assert cells[2:4] == [f"{part.overall[m]:.4f}" for m in ("accuracy", "classwise_ece")]
        assert f"{part.proportional_equality['stochastic']:.4f}" in cells


def split_report(wrong, parts=2, n=4000, names="abcde"):
    """A report in which each of these groups is miscalibrated in the first part only."""
    rng = np.random.default_rng(0)
    total = n * len(names) * parts
    part, p = np.arange(total) % parts, rng.uniform(0.2, 0.8, total)
    group = np.array(list(names), dtype=object)[np.arange(total) // parts % len(names)]
    bad = np.isin(group, wrong) & (part == 0)
    y = np.where(rng.random(total) < p - 0.15 * bad, "yes", "no")
    return audit(y, p, sensitive_features=group, by=part)


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        ([], "none"),
        (["b"], "b"),
        (["a", "c", "e"], "a, c, e"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)
def test_parts_name_the_groups_that_fail(wrong, shown):
    found = split_report(wrong)
    for part, names in zip(found.by.values(), (wrong, []), strict=True):
        words = {g: v.word for g, v in part.verdicts.items()}
        assert [g for g, word in words.items() if word == "miscalibrated"] == names
    text = printed(found, 120)
    table = text[text.index("By part") :].splitlines()
    assert table[1].split()[-1] == "miscal."
    (first,) = [line for line in table if line.startswith("0 ")]
    (second,) = [line for line in table if line.startswith("1 ")]
    assert first.rstrip().endswith(f"  {shown}")
    assert second.rstrip().endswith("  none")
    page = Reader(found._repr_html_()).cells
    assert page.count("miscalibrated") == 1
    assert shown in page
    assert "hold together, in every part too." in " ".join(text.split())


@pytest.mark.parametrize("reference", ["x", "y", "z"])
def test_the_reference_is_named(reference):
    found = report(["x", "y", "z"], reference_group=reference)
    text = str(found)
    assert f"300 rows, 3 groups (reference: {reference}), 2 classes" in text
    changes = text.split("Log amplification\n")[1].splitlines()[2:8]
    others = [g for g in "xyz" if g != reference]
    assert [line.split()[:2] for line in changes[:4]] == [[k, g] for k in "01" for g in others]
    assert f"(reference: {reference})" in found._repr_html_()


def test_verdicts_show_the_bounds_of_the_table():
    found = split_report(["b"], names="ab")
    own, verdict = found.by[0,], found.by[0,].verdicts["b"]
    assert (verdict.word, verdict.direction, verdict.label) == ("miscalibrated", "too high", "yes")
    assert verdict.error == pytest.approx(own.groups["b"]["classwise_ece"])
    low, high = own.intervals.groups["b"]["classwise_ece"]
    assert f"(ECE of 'yes' {verdict.error:.3f}, {low:.3f} to {high:.3f})" in verdict.text
    assert str(own).splitlines()[1].split()[2:4] == ["class", "ECE"]


def test_infinite_figures():
    with pytest.warns(match="x/0"):
        found = audit([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.7], sensitive_features=list("aabb"))
    assert found.proportional_equality["deterministic"] == math.inf
    text = str(found)
    assert "inf deterministic" in text
    assert "nan" not in text


# --- notebooks -------------------------------------------------------------------------------


class Reader(html.parser.HTMLParser):
    """Collects tags, the text of cells and list items, and checks that tags are closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.cells = set(), [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        assert not attrs
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)
        if tag in ("td", "th", "li"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th", "li"} & set(self.open):
            self.cells[-1] += data


@pytest.mark.parametrize("name", [*NAMES, "a & b", "\"quoted'", "a\nb"])
def test_html_is_escaped_and_whole(name):
    found = report([name, "y"], by=np.arange(300) % 2, reference_group="y")
    page = Reader(found._repr_html_())
    assert page.tags <= {"div", "p", "b", "small", "br", "table", "thead", "tbody", "tr", "th",
                         "td", "ul", "li"}  # fmt: skip
    assert not page.open
    shown = name.replace("\n", "\\n")
    # in the tables of figures and of rates and, for each class, in that of amplifications
    assert page.cells.count(shown) == 4 + (name == "overall")
    assert found.verdict.text in page.cells
    assert found.verdicts[name].text in page.cells
    for verdict in found.pe_verdicts.values():
        assert any(verdict.text[1:] in cell for cell in page.cells)
    ends = [f"{v:.4f}" for v in found.intervals.overall["ece"]]
    assert f"{found.overall['ece']:.4f}{ends[0]} to {ends[1]}" in page.cells


def test_html_escapes_every_name():
    group, label, month = "<img src=g>", "<k>&'", "<p>month"
    rng = np.random.default_rng(0)
    n = 8_000
    p, names = rng.uniform(0.2, 0.8, n), np.array([group, "other"], dtype=object)
    of = np.arange(n) // 2 % 2
    y = np.where(rng.random(n) < p - 0.15 * (of == 0), label, "!no")
    by = np.array([month, "later"], dtype=object)[np.arange(n) % 2]
    found = audit(y, p, sensitive_features=names[of], by=by, reference_group=group)
    assert found.verdicts[group].label == label
    page = found._repr_html_()
    reader = Reader(page)
    assert not reader.tags & {"img", "k"}
    for name in (group, label, month):
        assert name not in page
    cells = reader.cells
    assert any(f"The probability of '{label}' is" in cell for cell in cells)
    assert any(f"compared with '{group}'" in cell for cell in cells)
    assert any(cell.startswith(f"{group}: miscalibrated") for cell in cells)
    assert any(f"than {group}: " in cell for cell in cells)  # a comparison
    assert f"(reference: {html.escape(group)})" in page
    at = cells.index(month)
    assert group in cells[at : at + 12]  # the group that fails in this part


def test_html_without_intervals():
    figures = re.compile(r"-?\d+\.\d{4}-?\d+\.\d{4} to ")
    given, left = (
        Reader(report(["x", "y"], intervals=i)._repr_html_()).cells for i in (True, False)
    )
    assert any(map(figures.match, given))
    assert not any(map(figures.match, left))
    # those that verdicts decide on stay
    assert any("tolerance 0.05" in cell for cell in left)
