"""Calibrators as trees of sqlglot, from which it writes the SQL of any dialect.

Every number is a DOUBLE of 17 digits, and exponents are within ±700, beyond which PostgreSQL raises
an error. GREATEST and LEAST, which pass over NULL in some dialects, are evaluated only where no
input is NULL. They and other functions are called by name, since sqlglot rewrites those that it
knows into forms that evaluate their arguments several times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scipy.special import expit

from equipoise._inputs import ROW_SUM_TOLERANCE, need
from equipoise.calibration._calibrators import (
    Beta,
    BiasCorrected,
    Calibrator,
    Curve,
    Mixture,
    OneVsRest,
    Sigmoid,
    Steps,
    Temperature,
)
from equipoise.calibration._export import LARGEST, Exportable, Key
from equipoise.calibration._scores import SMALLEST

Tree = Any  # a sqlglot.Expression; a node is in one tree only, so what is used twice is made twice
Made = Callable[[], Tree]

STEEPEST = 700
"""Largest exponent: exp(700) is 1e304."""


def trees_of(
    what: Exportable, prob: Sequence[str], group: Sequence[str], refusal: str | None
) -> list[Tree]:
    """Return a tree for each class; `refusal` is the function that raises an error, or None."""
    exp, scores = sqlglot_expressions(), _Scores(prob, what)
    shared: dict[Calibrator, list[Key]] = {}
    for key, calibrator in zip(what.keys, what.calibrators.own.values(), strict=True):
        if calibrator != what.unseen:
            shared.setdefault(calibrator, []).append(key)
    trees = []
    for k in range(len(what.classes)):
        if what.unseen is None:
            tree = _refused(group, refusal)
        else:
            tree = _probability(what.unseen, k, scores)
        if shared:
            whens = [
                exp.If(
                    this=_is_one_of(keys, group, trimmed=what.trimmed),
                    true=_probability(calibrator, k, scores),
                )
                for calibrator, keys in shared.items()
            ]
            tree = exp.Case(ifs=whens, default=tree)
        trees.append(exp.Case(ifs=[exp.If(this=scores.sound(), true=tree)]))
    return trees


def sqlglot_expressions() -> Any:
    """Return `sqlglot.expressions`."""
    need("sqlglot", "export", "26", what="SQL")
    return need("sqlglot.expressions", "export", what="SQL")


def _nodes() -> Any:
    import sqlglot.expressions

    return sqlglot.expressions


# --- groups ----------------------------------------------------------------------------------


def _refused(group: Sequence[str], function: str | None) -> Tree:
    """Return an expression that raises an error and names the group, or NULL."""
    exp = _nodes()
    if function is None:
        return exp.Null()
    message = exp.Literal.string("no calibrator was fitted for the group ")
    for j, name in enumerate(group):
        if j:
            message = exp.DPipe(this=message, expression=exp.Literal.string(", "))
        text = _cast(exp.column(name, quoted=True), "VARCHAR")
        text = _call("COALESCE", text, exp.Literal.string("NULL"))
        message = exp.DPipe(this=message, expression=text)
    return _call(function, message)


def _is_one_of(keys: list[Key], group: Sequence[str], *, trimmed: bool) -> Tree:
    exp = _nodes()

    def column(name: str, value: Any) -> Tree:
        found = exp.column(name, quoted=True)
        return exp.Trim(this=found) if trimmed and isinstance(value, str) else found

    def is_key(key: Key) -> Tree:
        pairs = zip(group, key, strict=True)
        return _joined(exp.And, [exp.EQ(this=column(n, v), expression=_value(v)) for n, v in pairs])

    if len(keys) == 1:
        return is_key(keys[0])
    if len(group) == 1:
        values = [_value(value) for (value,) in keys]
        return exp.In(this=column(group[0], keys[0][0]), expressions=values)
    return _joined(exp.Or, [exp.Paren(this=is_key(key)) for key in keys])


def _value(value: Any) -> Tree:
    """Return a group's value as SQL has it, of its own type."""
    exp = _nodes()
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, float) and not value.is_integer():
        return _number(value)
    if isinstance(value, int | float):
        return exp.Literal.number(int(value))
    raise TypeError(f"group {value!r} is {type(value).__name__}, not text, a number or a boolean")


# --- small parts -----------------------------------------------------------------------------


def _number(value: float) -> Tree:
    # a literal such as 0.1 would be a DECIMAL
    return _cast(_nodes().Literal.string(repr(float(value))), "DOUBLE")


def _cast(tree: Tree, kind: str) -> Tree:
    exp = _nodes()
    return exp.Cast(this=tree, to=exp.DataType(this=exp.DataType.Type[kind]))


def _call(function: str, *arguments: Tree) -> Tree:
    return _nodes().Anonymous(this=function, expressions=list(arguments))


def _op(kind: str, left: Tree, right: Tree) -> Tree:
    exp = _nodes()
    both = [exp.Paren(this=x) if isinstance(x, exp.Binary) else x for x in (left, right)]
    return getattr(exp, kind)(this=both[0], expression=both[1])


def _plus(tree: Tree, constant: float) -> Tree:
    return _op("Add", tree, _number(constant)) if constant else tree


def _joined(kind: Any, parts: Sequence[Tree]) -> Tree:
    """Join trees by an operator, in halves: databases limit the depth of an expression."""
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2
    left, right = _joined(kind, parts[:half]), _joined(kind, parts[half:])
    wrap = _nodes().Paren
    right = wrap(this=right) if isinstance(right, kind) else right
    return kind(this=left, expression=right)


def _total(parts: Sequence[Tree]) -> Tree:
    return _joined(_nodes().Add, parts)


def _one() -> Tree:
    return _nodes().Literal.number(1)


def _exp(exponent: Tree) -> Tree:
    low, high = _number(-STEEPEST), _number(STEEPEST)
    return _call("EXP", _call("LEAST", _call("GREATEST", exponent, low), high))


def _inverse(parts: Sequence[Tree]) -> Tree:
    """Return 1 / (1 + the sum)."""
    return _op("Div", _number(1.0), _total([_one(), *parts]))


# --- scores ----------------------------------------------------------------------------------


class _Scores:
    """The logits of a row: columns, or logarithms of columns of probabilities."""

    def __init__(self, names: Sequence[str], what: Exportable) -> None:
        self.names, self.from_proba = names, what.from_proba
        self.count, self.single = len(what.classes), len(names) == 1

    def _column(self, k: int) -> Tree:
        exp = _nodes()
        if self.single and k == 0:
            return exp.Sub(this=_one(), expression=self._column(1))
        return _cast(exp.column(self.names[0 if self.single else k], quoted=True), "DOUBLE")

    def _clipped(self, k: int) -> Tree:
        return _call("GREATEST", self._column(k), _number(SMALLEST))

    def sound(self) -> Tree:
        """Return the condition under which a row has scores; NULL and NaN do not fulfil it."""
        exp = _nodes()
        places = [1] if self.single else range(self.count)
        low, high = (0.0, 1.0) if self.from_proba else (-LARGEST, LARGEST)
        within = [
            exp.Between(this=self._column(k), low=_number(low), high=_number(high)) for k in places
        ]
        if self.from_proba and not self.single:
            total = _total([self._column(k) for k in places])
            off = _call("ABS", _op("Sub", total, _one()))
            within.append(exp.LTE(this=off, expression=_number(ROW_SUM_TOLERANCE)))
        return _joined(exp.And, within)

    def score(self, k: int) -> Tree:
        """Return the logit of a class; of a single column only differences are used."""
        return _call("LN", self._clipped(k)) if self.from_proba else self._column(k)

    def difference(self, j: int, k: int) -> Tree:
        """Return the logit of class j less that of k."""
        if self.single and not self.from_proba:
            return self._column(1) if j else _nodes().Neg(this=self._column(1))
        return _op("Sub", self.score(j), self.score(k))

    def centred(self, k: int) -> Tree:
        """Return the logit of a class less the mean of all."""
        if self.count == 2:
            return _op("Div", self.difference(k, 1 - k), _number(2.0))
        mean = _op("Div", _total([self.score(j) for j in range(self.count)]), _number(self.count))
        return _op("Sub", self.score(k), mean)

    def below(self, k: int, threshold: float) -> Tree:
        """Return whether the log-odds of a class are less than a threshold."""
        exp = _nodes()
        if self.single and self.from_proba:  # shorter, and there are many thresholds
            return exp.LT(this=self._column(1), expression=_number(expit(threshold)))
        return exp.LT(this=_grouped(self.log_odds(k)), expression=_number(threshold))

    def log_odds(self, k: int) -> Tree:
        """Return the log-odds of a class against the rest."""
        rest = [j for j in range(self.count) if j != k]
        if self.count == 2:
            return self.difference(k, rest[0])
        if self.from_proba:
            total = _total([self._clipped(j) for j in rest])
            return _op("Sub", self.score(k), _call("LN", total))

        def largest() -> Tree:
            return _call("GREATEST", *[self.score(j) for j in rest])

        parts = [_exp(_op("Sub", self.score(j), largest())) for j in rest]
        return _op("Sub", _op("Sub", self.score(k), largest()), _call("LN", _total(parts)))


# --- calibrators -----------------------------------------------------------------------------


def _probability(calibrator: Calibrator, k: int, scores: _Scores) -> Tree:
    """Return the calibrated probability of class k."""
    if isinstance(calibrator, Mixture):
        parts = zip(calibrator.weights, calibrator.calibrators, strict=True)
        weighed = [_op("Mul", _number(w), _probability(c, k, scores)) for w, c in parts if w]
        return _call("LEAST", _total(weighed), _number(1.0))  # rounding may exceed it
    if isinstance(calibrator, OneVsRest):
        return _one_vs_rest(calibrator.curves, k, scores)
    # softmax: p_k = 1 / (1 + the sum of exp(u_j - u_k) over the other classes)
    exponents = []
    for j in range(scores.count):
        if j == k:
            continue
        if isinstance(calibrator, Temperature):
            exponent = _op("Div", scores.difference(j, k), _number(calibrator.temperature))
        elif isinstance(calibrator, BiasCorrected):
            exponent = _op("Div", scores.difference(j, k), _number(calibrator.temperature))
            exponent = _plus(exponent, calibrator.bias[j] - calibrator.bias[k])
        else:
            theirs = _op("Mul", scores.centred(j), _number(calibrator.scale[j]))
            own = _op("Mul", scores.centred(k), _number(calibrator.scale[k]))
            exponent = _op("Sub", theirs, own)
            exponent = _plus(exponent, calibrator.bias[j] - calibrator.bias[k])
        exponents.append(_exp(exponent))
    return _inverse(exponents)


def _one_vs_rest(curves: Sequence[Curve], k: int, scores: _Scores) -> Tree:
    exp = _nodes()
    if len(curves) == 1:
        p = _curve(curves[0], 1, scores)
        return p if k else _op("Sub", _one(), p)

    parts = [_curve(curve, j, scores) for j, curve in enumerate(curves)]
    total = _call("NULLIF", _total(parts), exp.Literal.number(0))
    share = _op("Div", _curve(curves[k], k, scores), total)
    return _call("COALESCE", share, _number(1.0 / len(curves)))


def _curve(curve: Curve, k: int, scores: _Scores) -> Tree:
    exp = _nodes()
    if isinstance(curve, Sigmoid):
        exponent = _plus(_op("Mul", _number(-curve.slope), scores.log_odds(k)), -curve.intercept)
        return _inverse([_exp(exponent)])
    if isinstance(curve, Beta):
        yes = _op("Mul", _number(-curve.a), _log_expit(lambda: scores.log_odds(k)))
        odds_against = lambda: exp.Neg(this=_grouped(scores.log_odds(k)))  # noqa: E731
        no = _op("Mul", _number(curve.b), _log_expit(odds_against))
        return _inverse([_exp(_plus(_op("Add", yes, no), -curve.c))])
    return _steps(curve, k, scores)


def _steps(curve: Steps, k: int, scores: _Scores) -> Tree:
    exp, ends, values = _nodes(), curve.thresholds, curve.values
    last = len(ends) - 1

    def between(low: int, high: int) -> Tree:
        """Return the curve from one threshold to another, found by halves."""
        if high - low > 1:
            middle = (low + high) // 2
            when = exp.If(this=scores.below(k, ends[middle]), true=between(low, middle))
            return exp.Case(ifs=[when], default=between(middle, high))
        width = ends[high] - ends[low]
        slope = (values[high] - values[low]) / width if width > 0.0 else 0.0
        beyond = _op("Sub", scores.log_odds(k), _number(ends[low]))
        return _op("Add", _op("Mul", _number(slope), beyond), _number(values[low]))

    if last == 0:
        return _number(values[0])
    whens = [
        exp.If(this=scores.below(k, ends[0]), true=_number(values[0])),
        exp.If(this=scores.below(k, ends[last]), true=between(0, last)),
    ]
    return exp.Case(ifs=whens, default=_number(values[last]))


def _log_expit(s: Made) -> Tree:
    """Return log(1 / (1 + exp(-s))) = min(s, 0) - log(1 + exp(-|s|))."""
    exp = _nodes()
    below = _call("LEAST", s(), _number(0.0))
    inside = _exp(exp.Neg(this=_call("ABS", s())))
    return _op("Sub", below, _call("LN", exp.Add(this=_one(), expression=inside)))


def _grouped(tree: Tree) -> Tree:
    exp = _nodes()
    return exp.Paren(this=tree) if isinstance(tree, exp.Binary) else tree
