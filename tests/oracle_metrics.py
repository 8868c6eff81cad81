"""The metrics as plain loops over rows, written from the definitions in the paper and the issue.

Labels are column numbers, probabilities rows of floats. Sums are exact (`Fraction`), and nothing
here knows of arrays, fixed point or the audit table.
"""

from fractions import Fraction
from math import inf, isinf, log, nan


def as_rows(y_prob):
    """Probabilities (n, K) or (n,) as lists of Python floats; (n,) is [1 - p, p]."""
    return [
        [1.0 - float(p), float(p)] if not hasattr(p, "__len__") else [float(v) for v in p]
        for p in y_prob
    ]


def top(p):
    """The most probable class, the first of equals."""
    best = 0
    for k in range(1, len(p)):
        if p[k] > p[best]:
            best = k
    return best


def bin_of(p, n_bins):
    """The bin I_m = ((m - 1)/M, m/M] that holds p, counted from 0; 0 itself is in the first."""
    for m in range(1, n_bins + 1):
        if p <= m / n_bins:
            return m - 1
    raise ValueError(p)


def weights_of(y, weight):
    return [Fraction(1)] * len(y) if weight is None else [Fraction(float(w)) for w in weight]


def top_label_rows(y, y_prob, weight):
    """(correct, confidence, weight) of every row that weighs something."""
    rows = []
    for label, p, w in zip(y, as_rows(y_prob), weights_of(y, weight), strict=True):
        if w > 0:
            rows.append((int(top(p) == label), p[top(p)], w))
    return rows


class Bin:
    def __init__(self, rows):
        self.rows = len(rows)
        self.mass = sum(w for _, _, w in rows)
        self.accuracy = sum(w * correct for correct, _, w in rows) / self.mass
        self.confidence = sum(w * Fraction(p) for _, p, w in rows) / self.mass
        self.gap = abs(self.accuracy - self.confidence)


def equal_width(rows, n_bins):
    """The bins that hold rows, by number."""
    parts = {}
    for row in rows:
        parts.setdefault(bin_of(row[1], n_bins), []).append(row)
    return {b: Bin(parts[b]) for b in sorted(parts)}


def mean_gap(bins):
    total = sum(b.mass for b in bins)
    return float(sum(b.mass / total * b.gap for b in bins))


def accuracy(y, y_prob, weight=None):
    rows = top_label_rows(y, y_prob, weight)
    return float(sum(w * correct for correct, _, w in rows) / sum(w for _, _, w in rows))


def ece(y, y_prob, weight=None, n_bins=15):
    return mean_gap(equal_width(top_label_rows(y, y_prob, weight), n_bins).values())


def mce(y, y_prob, weight=None, n_bins=15):
    bins = equal_width(top_label_rows(y, y_prob, weight), n_bins).values()
    return float(max(b.gap for b in bins))


def classwise_ece(y, y_prob, weight=None, n_bins=15):
    """The mean over classes k of the ECE of p_k as the probability of "the label is k"."""
    prob = as_rows(y_prob)
    total = 0.0
    for k in range(len(prob[0])):
        rows = [
            (int(label == k), p[k], w)
            for label, p, w in zip(y, prob, weights_of(y, weight), strict=True)
            if w > 0
        ]
        total += mean_gap(equal_width(rows, n_bins).values())
    return total / len(prob[0])


def equal_mass_ece(y, y_prob, weight=None, n_bins=15):
    """Bin j ends at the first confidence at which a share j/M of the (weighted) rows is reached."""
    rows = sorted(top_label_rows(y, y_prob, weight), key=lambda row: row[1])
    total = sum(w for _, _, w in rows)
    ends = []
    for j in range(1, n_bins + 1):
        reached = Fraction(0)
        for _, confidence, w in rows:
            reached += w
            if reached * n_bins >= total * j:
                ends.append(confidence)
                break
    parts = {}
    for row in rows:
        parts.setdefault(min(e for e in ends if row[1] <= e), []).append(row)
    return mean_gap([Bin(part) for part in parts.values()])


def debiased_squared_ece(y, y_prob, weight=None, n_bins=15):
    """Each bin's squared gap from its pairs of different rows, pairs weighing w_i w_j."""
    parts = {}
    rows = top_label_rows(y, y_prob, weight)
    for correct, confidence, w in rows:
        parts.setdefault(bin_of(confidence, n_bins), []).append((correct - Fraction(confidence), w))
    result = Fraction(0)
    for part in parts.values():
        if len(part) < 2:
            continue
        products = mass = Fraction(0)
        for i, (d, w) in enumerate(part):
            for j, (e, v) in enumerate(part):
                if i != j:
                    products += w * v * d * e
                    mass += w * v
        result += sum(w for _, w in part) * products / mass
    return float(result / sum(w for _, _, w in rows))


def brier(y, y_prob, weight=None):
    """Squared errors added over classes, halved where there are two."""
    total = mass = Fraction(0)
    for label, p, w in zip(y, as_rows(y_prob), weights_of(y, weight), strict=True):
        squares = sum((Fraction(v) - (label == k)) ** 2 for k, v in enumerate(p))
        total += w * (squares / 2 if len(p) == 2 else squares)
        mass += w
    return float(total / mass)


def log_loss(y, y_prob, weight=None):
    total = mass = 0.0
    for label, p, w in zip(y, as_rows(y_prob), weights_of(y, weight), strict=True):
        if w > 0:
            total += float(w) * (inf if p[label] == 0 else -log(p[label]))
            mass += float(w)
    return total / mass


def reliability_curve(y, y_prob, weight=None, n_bins=15):
    """(lower, upper, count, accuracy, confidence) of each bin, nan where it holds no row."""
    bins = equal_width(top_label_rows(y, y_prob, weight), n_bins)
    curve = []
    for m in range(n_bins):
        edges = (m / n_bins, (m + 1) / n_bins)
        if m in bins:
            b = bins[m]
            curve.append((*edges, float(b.mass), float(b.accuracy), float(b.confidence)))
        else:
            curve.append((*edges, 0.0, nan, nan))
    return curve


def group_rates(y, groups, n_classes, weight=None):
    """Pr[Y = k | A = g] as {group: [rate of class k]}."""
    shares = [[float(k == label) for k in range(n_classes)] for label in y]
    return mean_shares(shares, groups, weight)


def model_rates(y_prob, groups, weight=None, kind="stochastic", decisions=None):
    """Pr[Yhat = k | A = g]: the mean of p_k, or the share of rows decided as k."""
    prob = as_rows(y_prob)
    if kind == "stochastic":
        return mean_shares(prob, groups, weight)
    decisions = [top(p) for p in prob] if decisions is None else decisions
    return group_rates(decisions, groups, len(prob[0]), weight)


def mean_shares(shares, groups, weight):
    rates = {}
    for g in sorted(set(groups)):
        members = [
            (s, w)
            for s, a, w in zip(shares, groups, weights_of(groups, weight), strict=True)
            if a == g
        ]
        mass = sum(w for _, w in members)
        rates[g] = [
            float(sum(w * Fraction(s[k]) for s, w in members) / mass) for k in range(len(shares[0]))
        ]
    return rates


def ratio(a, b):
    """The quotient a / b, with x/0 = inf, and None for 0/0."""
    if b == 0:
        return inf if a > 0 else None
    return a / b


def proportional_equality(data, model, form="group-ratio", reference=None):
    """PE of the label rates `data` and the model's rates `model`, each {group: [rate]}."""
    groups = sorted(data)
    if reference == "all":
        pairs = [(g, h) for g in groups for h in groups if g != h]
    else:
        reference = groups[0] if reference is None else reference
        pairs = [(g, reference) for g in groups if g != reference]
    gaps = []
    for g, ref in pairs:
        for k in range(len(data[g])):
            if form == "group-ratio":
                one = ratio(data[g][k], data[ref][k])
                two = ratio(model[g][k], model[ref][k])
            else:
                one = ratio(model[g][k], data[g][k])
                two = ratio(model[ref][k], data[ref][k])
            if one is None or two is None or (isinf(one) and isinf(two)):
                continue
            gaps.append(abs(one - two))
    return max(gaps) if gaps else nan
