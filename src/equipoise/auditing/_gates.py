"""Gates: conditions such as ``ece[Female] > 0.05`` under which an audit fails.

A gate is checked on all rows and, where a report is split (`by=`), on every part. Where a figure is
missing or undefined, it fails and says why.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal

from equipoise._inputs import alternatives, shown, text_of
from equipoise.auditing._intervals import NO_INTERVALS, Interval, Intervals
from equipoise.auditing._report import AuditReport
from equipoise.auditing._verdicts import Verdict
from equipoise.metrics import METRICS

OnInterval = Literal["strict", "lenient"]

_KINDS = {"pe": "stochastic", "pe_deterministic": "deterministic"}
_COUNTS = ("rows", "dropped")
_AMPLIFIES = {"amplifies": "stochastic", "amplifies_deterministic": "deterministic"}
_WORDS = ("miscalibrated", *_AMPLIFIES)
NAMES = (*METRICS, *_KINDS, *_COUNTS, *_WORDS)

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
# the name of a group may hold any character, so the bracket goes to the last one that closes
_FORM = re.compile(
    r"(?P<name>[\w-]+)(?P<suffix>\.\w+)?\s*(?P<group>\[.*\])?(?P<late>\.\w+)?"
    r"\s*((?P<op>[<>=!]+)\s*(?P<limit>\S.*)?)?",
    re.DOTALL,
)
_PART = re.compile(
    r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^"',\]][^,\]]*|))\s*(,|$)""", re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of a gate for one figure of a report.

    Attributes
    ----------
    holds
        Whether the gate passes.
    where
        Name of the figure, its group, and the part of a split report.
    value
        The figure; nan for a verdict.
    interval
        Its interval; None for counts, verdicts and reports without intervals.
    text
        The outcome in one line.
    """

    holds: bool
    where: str
    value: float
    interval: Interval | None
    text: str


@dataclasses.dataclass(frozen=True)
class Gate:
    """A condition under which an audit fails.

    Attributes
    ----------
    text
        The condition as it was written.
    name
        A name in `METRICS`; "pe" or "pe_deterministic"; "rows" or "dropped"; or a verdict:
        "miscalibrated", "amplifies" or "amplifies_deterministic".
    gap
        Whether the largest difference between two groups is meant.
    group
        Name of a group, one text for each sensitive column. None means all rows; for a verdict,
        all rows and each group.
    each
        Whether the gate is for each group, written [*].
    sign, limit
        The comparison; "" and nan for a verdict.

    Examples
    --------
    >>> gate = Gate.parse("ece[Female] > .05")
    >>> gate.name, gate.group, gate.sign, gate.limit
    ('ece', ('Female',), '>', 0.05)
    """

    text: str
    name: str
    gap: bool = False
    group: tuple[str, ...] | None = None
    each: bool = False
    sign: str = ""
    limit: float = math.nan

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Read a gate from its text."""
        text = text.strip()
        form = _FORM.fullmatch(text)
        if form is None:
            raise ValueError(
                f"{text!r} is not a gate; write for example 'ece > 0.05', 'ece[Female] > 0.05', "
                "'ece[*] > 0.05', 'accuracy.gap >= 0.1', 'pe > 0.2' or 'miscalibrated'"
            )
        name = form["name"].lower().replace("-", "_")
        if name not in NAMES:
            raise ValueError(f"there is no metric {form['name']!r}; {alternatives(name, NAMES)}")
        if form["late"]:
            raise ValueError(f"{text!r}: a gap is between groups, so it has no group of its own")
        gap = form["suffix"] is not None
        if gap and (form["suffix"] != ".gap" or name not in METRICS):
            raise ValueError(
                f"{text!r}: there is no {name}{form['suffix']}; .gap is for {', '.join(METRICS)}"
            )
        inner = None if form["group"] is None else form["group"][1:-1].strip()
        if inner is not None and (gap or name in (*_KINDS, *_AMPLIFIES, "dropped")):
            what = f"{name}.gap" if gap else name
            why = "is of all rows" if name == "dropped" else "compares groups"
            raise ValueError(f"{text!r}: {what} {why}, so it has no [group]")
        each = inner == "*"
        group = None if inner is None or each else split_names(inner)
        if name not in _WORDS:
            return cls(text, name, gap, group, each, *_limit(text, form))
        if form["op"]:
            raise ValueError(f"{text!r}: {name} is a verdict, so it has no limit")
        return cls(text, name, False, group, each)

    def check(self, report: AuditReport, on_interval: OnInterval | None = None) -> list[Outcome]:
        """Check the gate on a report and its parts.

        Parameters
        ----------
        report
            What `audit` found.
        on_interval
            By default the figure itself decides. With "strict" the gate fails if any part of the
            interval meets the condition, with "lenient" only if all of it does. Counts have no
            interval. Under "strict", verdicts must show the model to be good: all rows and every
            group are "calibrated"; no ratio may be farther from 1 than in the data by more than a
            factor of 1.25.
        """
        group = None if self.group is None else find_group(self.group, list(report.groups))
        found = self._of(report, group, on_interval, "")
        if self.name != "dropped":  # rows are left out before they are split
            for key, part in report.by.items():
                found += self._of(part, group, on_interval, f" at {shown(key)}")
        return found

    def _of(
        self, report: AuditReport, group: Hashable, on_interval: OnInterval | None, at: str
    ) -> list[Outcome]:
        if self.name in _AMPLIFIES:
            return [self._amplifies(report, on_interval, self.name + at)]
        grouped = self.group is not None or self.each or self.name == "miscalibrated"
        places = [group] if self.group is not None or not grouped else list(report.groups)
        found = []
        if self.name == "miscalibrated" and self.group is None and not self.each:
            found.append(self._judged(report.verdict, on_interval, self.name + at))
        for own in places:
            where = f"{self.name}{'.gap' * self.gap}"
            where += (f"[{shown(own)}]" if grouped else "") + at
            if grouped and own not in report.groups:
                found.append(self._fails(where, "there are no rows of this group"))
            elif self.name == "miscalibrated":
                found.append(self._judged(report.verdicts[own], on_interval, where))
            else:
                found.append(self._compare(report, own, grouped, on_interval, where))
        return found

    def _judged(self, verdict: Verdict, on_interval: OnInterval | None, where: str) -> Outcome:
        doubted = on_interval == "strict" and verdict.word == "not enough evidence"
        wrong = verdict.word == "miscalibrated" or doubted
        return self._outcome(not wrong, where, math.nan, None, verdict.text)

    def _amplifies(
        self, report: AuditReport, on_interval: OnInterval | None, where: str
    ) -> Outcome:
        kind = _AMPLIFIES[self.name]
        verdict = report.pe_verdicts.get(kind)
        if len(report.groups) < 2 or verdict is None:
            return self._fails(where, "there is one group only")
        holds, said = verdict.word not in ("amplifies", "reverses", "undefined"), verdict.text
        if holds and on_interval is None:
            # a ratio that changes in an open direction: the figures decide
            each = (a for g in report.amplification[kind].values() for a in g.values())
            holds = not any(a.word == "changes" and a.grows for a in each)
        elif holds and on_interval == "strict":
            holds = verdict.not_amplified and verdict.word != "changes"
            if not holds:
                said += " The data do not show that no ratio grows by more than a factor of 1.25."
        return self._outcome(holds, where, math.nan, None, said)

    def _compare(
        self,
        report: AuditReport,
        group: Hashable,
        grouped: bool,
        on_interval: OnInterval | None,
        where: str,
    ) -> Outcome:
        value, interval = self._figure(report, group, grouped)
        if value is None or math.isnan(value):
            few = len(report.groups) < 2 and (self.gap or self.name in _KINDS)
            return self._fails(where, "there is one group only" if few else "it is undefined")
        decides = value
        if on_interval is not None and self.name not in _COUNTS:
            if interval is None or math.isnan(interval.low) or math.isnan(interval.high):
                return self._fails(where, f"{_digits(value)} has no interval to decide by")
            upper = (on_interval == "strict") == (self.sign in (">", ">="))
            decides = interval.high if upper else interval.low
        violates = _OPERATORS[self.sign](decides, self.limit)
        text = self._number(value)
        if interval is not None and not math.isnan(interval.low):
            text += f" [{self._number(interval.low)}, {self._number(interval.high)}]"
        return self._outcome(not violates, where, value, interval, text)

    def _figure(
        self, report: AuditReport, group: Hashable, grouped: bool
    ) -> tuple[float | None, Interval | None]:
        """Return the figure and its interval, None where there is none."""
        if self.name == "dropped":
            return report.dropped, None
        if self.name == "rows":
            rows = report.table["rows"]
            return float(rows[report.table.groups.index(group)] if grouped else rows.sum()), None
        name = _KINDS.get(self.name, self.name)

        def of(found: AuditReport | Intervals) -> Mapping[str, Any]:
            if self.name in _KINDS:
                return found.proportional_equality
            if self.gap:
                return found.gaps
            return found.groups.get(group, {}) if grouped else found.overall

        return of(report).get(name), of(report.intervals or NO_INTERVALS).get(name)

    def _fails(self, where: str, why: str) -> Outcome:
        return self._outcome(False, where, math.nan, None, why)

    def _outcome(
        self, holds: bool, where: str, value: float, interval: Interval | None, found: str
    ) -> Outcome:
        condition = f"{where} {self.sign} {self.limit:g}" if self.sign else where
        text = f"{condition} {'passes' if holds else 'fails'}: {found}"
        return Outcome(holds, where, value, interval, text)

    def _number(self, value: float) -> str:
        """Show a figure; with all its digits where rounding would put it on the limit."""
        if self.name in _COUNTS:
            return f"{value:,.0f}"
        short = _digits(value)
        if value != self.limit and math.isfinite(value) and float(short) == self.limit:
            return repr(float(value))
        return short


def find_group(names: Sequence[str], groups: Iterable[Hashable]) -> Hashable:
    """Return the group of this name, one text for each sensitive column.

    >>> find_group(["1"], [0, 1]), find_group(["F", "old"], [("F", "old"), ("M", "old")])
    (1, ('F', 'old'))
    """
    groups = list(groups)
    wanted = tuple(names)
    joined = ", ".join(wanted)
    # a name that matches as it is written comes first
    for form in (str, _text):
        for group in groups:
            values = group if isinstance(group, tuple) else (group,)
            if tuple(map(form, values)) == tuple(map(form, wanted)):
                return group
    for group in groups:
        if joined == shown(group):
            return group
    known = [shown(g) for g in groups]
    raise ValueError(f"there is no group {joined!r}; {alternatives(joined, known, '; ')}")


def group_named(text: str, groups: Iterable[Hashable]) -> Hashable:
    """Return the group that a text names, its columns separated by commas."""
    return find_group(split_names(text), groups)


def split_names(text: str) -> tuple[str, ...]:
    r"""Split a list of names at its commas; a name in quotes may hold commas.

    >>> split_names("Female, Black"), split_names("'a, b', O\'Brien")
    (('Female', 'Black'), ('a, b', "O'Brien"))
    """
    names, at = [], 0
    while True:
        part = _PART.match(text, at)
        if part is None:
            raise ValueError(f'[{text}]: put a name with brackets or quotes in quotes: ["a\'[b]"]')
        quoted = part[1] if part[1] is not None else part[2]
        name = part[3].strip() if quoted is None else re.sub(r"\\(.)", _unescape, quoted)
        if not name and quoted is None:
            raise ValueError(f"[{text}]: a name is missing; each group is [*]")
        names.append(name)
        at = part.end()
        if part[4] == "":
            return tuple(names)


def _unescape(match: re.Match[str]) -> str:
    return {"n": "\n", "r": "\r", "t": "\t"}.get(match[1], match[1])


def _text(value: object) -> str:
    try:
        return str(text_of(value))
    except TypeError:
        return str(value)


def _digits(value: float) -> str:
    return f"{value:.4f}"


def _limit(text: str, form: re.Match[str]) -> tuple[str, float]:
    sign = form["op"]
    if sign is not None and sign not in _OPERATORS:
        raise ValueError(f"{text!r}: there is no {sign}; the signs are {' '.join(_OPERATORS)}")
    if sign is None or form["limit"] is None:
        raise ValueError(f"{text!r} has no limit; write for example '{form['name']} > 0.05'")
    try:
        limit = float(form["limit"])
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit):
        raise ValueError(f"{text!r}: {form['limit']!r} is not a number")
    return sign, limit
