"""The losses of the paper as plain loops over one batch, written from its formulas.

Nothing here is shared with `equipoise.training`: rows are lists of numbers, sub-batches lists of
row numbers, and the pair-wise terms are the paper's double sums over pairs of sub-batches.
"""

import math

import numpy as np

DEFAULTS = {"alpha": 0.05, "gamma": 3.0, "gamma_hard": 5.0, "hard": 0.2, "kernel_width": 0.4}
ADDED = {"dca", "mdca", "mmce", "mmce-w"}


def softmax(row):
    top = max(row)
    exps = [math.exp(z - top) for z in row]
    return [e / sum(exps) for e in exps]


def log_softmax(row):
    top = max(row)
    log_sum = math.log(sum(math.exp(z - top) for z in row))
    return [z - top - log_sum for z in row]


def first_argmax(p):
    best = 0
    for k in range(1, len(p)):
        if p[k] > p[best]:
            best = k
    return best


def cross_entropy(row, y, _):
    return -log_softmax(row)[y]


def label_smoothing(row, y, const):
    total, n_classes = 0.0, len(row)
    for k, log_p in enumerate(log_softmax(row)):
        q = 1 if k == y else 0
        s = (1 - const["alpha"]) * q + const["alpha"] * (1 - q) / (n_classes - 1)
        total -= s * log_p
    return total


def focal(row, y, const):
    return -((1 - softmax(row)[y]) ** const["gamma"]) * log_softmax(row)[y]


def sample_dependent_focal(row, y, const):
    gamma = const["gamma_hard"] if softmax(row)[y] <= const["hard"] else const["gamma"]
    return focal(row, y, {"gamma": gamma})


LINEAR = {
    "ce": cross_entropy,
    "ls": label_smoothing,
    "fl": focal,
    "flsd": sample_dependent_focal,
}


def dca(probs, targets, batch):
    accuracy = confidence = 0.0
    for i in batch:
        top = first_argmax(probs[i])
        accuracy += (targets[i] == top) / len(batch)
        confidence += probs[i][top] / len(batch)
    return abs(accuracy - confidence)


def mdca(probs, targets, batch):
    n_classes = len(probs[0])
    total = 0.0
    for k in range(n_classes):
        mean_p = sum(probs[i][k] for i in batch) / len(batch)
        share = sum(targets[i] == k for i in batch) / len(batch)
        total += abs(mean_p - share)
    return total / n_classes


GAPS = {"dca": dca, "mdca": mdca}


def mmce_pairs(c, r, left, right, kernel):
    """Return L(B, B') of two sub-batches, the mean over their pairs."""
    total = 0.0
    for i in left:
        for j in right:
            total += (c[i] - r[i]) * (c[j] - r[j]) * kernel(r[i], r[j])
    return total / (len(left) * len(right))


def mmce_w_pairs(c, r, left, right, kernel):
    """Return L(B, B'): each of right-right, wrong-wrong, right-wrong averaged over its pairs."""
    total = 0.0
    for ci in (0, 1):
        for cj in (0, 1):
            some, others = [i for i in left if c[i] == ci], [j for j in right if c[j] == cj]
            for i in some:
                for j in others:
                    size = ((1 - r[i]) if ci else r[i]) * ((1 - r[j]) if cj else r[j])
                    sign = 1 if ci == cj else -1
                    pair = sign * size * kernel(r[i], r[j])
                    total += pair / (len(some) * len(others))
    return total


PAIRS = {"mmce": mmce_pairs, "mmce-w": mmce_w_pairs}


def group_term(name, logits, targets, batches, const):
    """Return the term L_g of (weight, row numbers) sub-batches; an empty one adds nothing."""
    batches = [(pi, rows) for pi, rows in batches if rows]
    if name in LINEAR:
        return sum(
            pi * sum(LINEAR[name](logits[i], targets[i], const) for i in rows) / len(rows)
            for pi, rows in batches
        )
    probs = [softmax(row) for row in logits]
    if name in GAPS:
        return sum(pi * GAPS[name](probs, targets, rows) for pi, rows in batches)
    tops = [first_argmax(p) for p in probs]
    c = [int(y == top) for y, top in zip(targets, tops, strict=True)]
    r = [p[top] for p, top in zip(probs, tops, strict=True)]

    def kernel(a, b):
        return math.exp(-abs(a - b) / const["kernel_width"])

    square = 0.0
    for pi, left in batches:
        for other, right in batches:
            square += pi * other * PAIRS[name](c, r, left, right, kernel)
    return math.sqrt(max(square, 0.0))


def sub_batches(n, groups, rho):
    if rho is None:
        return [(1.0, list(range(n)))]
    weights = list(rho) if hasattr(rho, "__len__") else [1 - rho, rho]
    return [(pi, [i for i in range(n) if groups[i] == g]) for g, pi in enumerate(weights)]


def oracle(name, logits, targets, groups=None, rho=None, lam=1.0, **constants):
    """Return the whole training loss of one configuration; arguments are nested lists."""
    const = {**DEFAULTS, **constants}
    everything = [(1.0, list(range(len(logits))))]
    plain = group_term("ce", logits, targets, everything, const)
    if name == "ce":
        return plain
    term = group_term(name, logits, targets, sub_batches(len(logits), groups, rho), const)
    return plain + lam * term if name in ADDED else term


def laplacian_kernel(r_1, r_2, gamma=0.2):
    return np.exp(-1.0 * np.abs(r_1[None, :] - r_2[:, None]) / (2 * gamma))


def groupwise_mmce(lbd, rho, y, logits, a):
    """Transcribe `groupwise_mmce` of the appendix from TensorFlow to NumPy, line by line."""
    y_pred = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    training_loss = -np.log(y_pred[np.arange(len(y)), y]).mean()
    c = (y == np.argmax(y_pred, axis=-1)).astype(float)
    r = np.max(y_pred, axis=-1)
    c_minus_r = c - r
    c_minus_r_maj, c_minus_r_min = c_minus_r[np.where(a)[0]], c_minus_r[np.where(1 - a)[0]]
    r_maj, r_min = r[np.where(a)[0]], r[np.where(1 - a)[0]]
    loss_1 = np.mean(
        (c_minus_r_maj[None, :] * c_minus_r_maj[:, None]) * laplacian_kernel(r_maj, r_maj)
    )
    loss_2 = np.mean(
        (c_minus_r_min[None, :] * c_minus_r_min[:, None]) * laplacian_kernel(r_min, r_min)
    )
    loss_3 = np.mean(
        (c_minus_r_maj[None, :] * c_minus_r_min[:, None]) * laplacian_kernel(r_maj, r_min)
    )
    return training_loss + lbd * np.sqrt(
        rho * rho * loss_1 + (1 - rho) * (1 - rho) * loss_2 + 2.0 * rho * (1 - rho) * loss_3
    )
