"""The audit table: a small table of sums from which every metric follows.

Sums are kept per group x class, per group x confidence bin, and per group x class x bin, so a
table's size does not depend on the number of rows. Without weights they are exact: counts are
integers, and each probability p enters as the integer floor(p * 2**32 + 0.5), so sums do not
depend on the order of the rows or on where they were added. With weights they are float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import (
    check_bins,
    check_weights,
    class_count,
    column_labels,
    column_names,
    encode_groups,
    encode_labels,
    from_plain,
    matrix,
    probability_slice,
    same_length,
    to_plain,
)
from equipoise.metrics._sums import (
    BLOCKS,
    CELLS,
    FLUSH,
    ROWS,
    SUMS,
    UNLABELLED,
    Array,
    Fill,
    chosen_blocks,
    zeros,
)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AuditTable:
    """Sums per group, class and bin; the tables of different rows can be added with ``+``.

    Attributes
    ----------
    groups
        The groups' own values, in sorted order; ``(None,)`` where rows were not grouped.
    labels
        The label each class stands for.
    n_bins
        Number of confidence bins (lo, hi] of equal width; confidence 0 is in the first.
    weighted
        Whether rows had weights. Then the sums are float64, otherwise exact integers.
    sums
        The raw sums by name, see `SUMS`, each of shape (group, [class,] [bin]).

    Examples
    --------
    >>> table = AuditTable.from_arrays([0, 1, 1], [0.2, 0.9, 0.4], sensitive_features=list("aab"))
    >>> table.groups, table["hits"].sum(axis=1).tolist()
    (('a', 'b'), [2.0, 0.0])
    >>> table == AuditTable.from_dict(table.to_dict())
    True
    """

    groups: tuple[Hashable, ...]
    labels: tuple[Hashable, ...]
    n_bins: int
    weighted: bool
    sums: Mapping[str, Array]

    @classmethod
    def from_arrays(
        cls,
        y_true: Any,
        y_prob: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        n_bins: int = 15,
        labels: Any = None,
        positive: Any = None,
        y_pred: Any = None,
        blocks: Iterable[str] = BLOCKS,
    ) -> AuditTable:
        """Sum up labels and probabilities held in memory, a slice at a time.

        Parameters
        ----------
        y_true
            Labels, of any coding. None only where `blocks` needs no labels.
        y_prob
            Probabilities (n, K), or (n,) for the second label of a binary problem.
        sensitive_features
            One column, or several whose intersection is meant; by default one group, None.
        sample_weight
            Weight of each row.
        n_bins
            Number of confidence bins of equal width.
        labels
            Label of each column of `y_prob`. By default the labels that the names of a frame's
            columns match one to one (a name is a label, or ends in it), else the sorted labels.
        positive
            The label whose probability a one-dimensional `y_prob` holds, if not the second.
        y_pred
            Decisions made elsewhere; they replace the argmax in `predictions` and `hits` only.
        blocks
            Names of the blocks of sums to fill; fewer are faster.
        """
        blocks = chosen_blocks(blocks)
        check_bins(n_bins)
        prob = matrix(y_prob, "y_prob")
        n, k = len(prob), class_count(prob)
        y: Array | None = None
        group: Array | None = None
        groups: list[Hashable] = [None]
        if y_true is not None:
            y, resolved = encode_labels(
                y_true, k, labels, columns=column_names(y_prob), positive=positive
            )
        elif blocks <= UNLABELLED and labels is not None:
            resolved = column_labels((), k, labels=labels)
        else:
            raise ValueError("y_true is None; only rates of predictions need no labels")
        pred = None if y_pred is None else encode_labels(y_pred, k, resolved, "y_pred")[0]
        if sensitive_features is not None:
            group, groups = encode_groups(sensitive_features)
        same_length(n, y_true=y, y_pred=pred, sensitive_features=group)
        weight = check_weights(sample_weight, n)
        fill = Fill(blocks, len(groups), k, int(n_bins), weighted=weight is not None)
        step = min(ROWS, max(256, CELLS // k))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            given: list[Any] = [None if v is None else v[rows] for v in (y, pred, group, weight)]
            fill.add(probability_slice(prob, rows), *given)
        return cls(tuple(groups), tuple(resolved), int(n_bins), weight is not None, fill.finished())

    @classmethod
    def from_stack(
        cls,
        prob: NDArray[np.float64],
        y: Array,
        group: Array,
        *,
        groups: tuple[Hashable, ...],
        labels: tuple[Hashable, ...],
        sample_weight: NDArray[np.float64] | None = None,
        n_bins: int = 15,
        blocks: Iterable[str] = BLOCKS,
    ) -> AuditTable:
        """Sum up the probabilities (class, config, n) of many models on the same rows.

        Classes `y`, groups (both codes) and weights are (n,). The sums get a leading axis:
        (config, group, ...).
        """
        k, configs, n = prob.shape
        weighted = sample_weight is not None
        fill = Fill(chosen_blocks(blocks), configs * len(groups), k, n_bins, weighted=weighted)
        flat = prob.reshape(k, -1)
        cell = (np.arange(configs)[:, None] * len(groups) + group).ravel()
        target = np.broadcast_to(y, (configs, n)).ravel()
        weight = None if sample_weight is None else np.tile(sample_weight, configs)
        for start in range(0, configs * n, ROWS):
            rows = slice(start, start + ROWS)
            own = None if weight is None else weight[rows]
            fill.add(flat[:, rows], target[rows], None, cell[rows], own)
        # a few slices fit int64, and Python integers would take longer than all the rest
        found = fill.recent if fill.slices < FLUSH else fill.finished()
        sums = {n: v.reshape(configs, len(groups), *v.shape[1:]) for n, v in found.items()}
        return cls(groups, labels, n_bins, weighted, sums)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """Return a sum as float64 in its natural unit (probabilities as probabilities)."""
        if name not in self.sums:
            raise KeyError(f"{name!r} was not summed; the table holds {sorted(self.sums)}")
        values = self.sums[name].astype(np.float64)
        return values if self.weighted else values / SUMS[name].unit

    def pooled(self) -> AuditTable:
        """Return the table of all groups together, as one group named None."""
        # the group is the axis before those of the sum itself
        sums = {
            name: array.sum(axis=-1 - len(SUMS[name].axes), keepdims=True)
            for name, array in self.sums.items()
        }
        return dataclasses.replace(self, groups=(None,), sums=sums)

    def only(self, groups: slice) -> AuditTable:
        """Return the table of some of the groups, by their positions."""
        sums = {}
        for name, array in self.sums.items():
            index: Any = (..., groups, *(slice(None) for _ in SUMS[name].axes))
            sums[name] = array[index]
        return dataclasses.replace(self, groups=self.groups[groups], sums=sums)

    def __add__(self, other: AuditTable) -> AuditTable:
        if not isinstance(other, AuditTable):
            return NotImplemented
        for what in ("labels", "n_bins"):
            mine, theirs = getattr(self, what), getattr(other, what)
            if mine != theirs:
                raise ValueError(
                    f"tables with different {what} cannot be added: {mine!r} and {theirs!r}; "
                    f"fill both with the same {what}="
                )
        if self.sums.keys() != other.sums.keys():
            raise ValueError("tables filled with different blocks cannot be added")
        groups = self.groups
        if not set(other.groups) <= set(groups):
            try:
                groups = tuple(sorted({*groups, *other.groups}))  # type: ignore[type-var]
            except TypeError:
                raise ValueError(
                    f"groups {self.groups!r} and {other.groups!r} are of different kinds"
                ) from None
        weighted = self.weighted or other.weighted
        sums = {}
        for name in self.sums:
            shape = (len(groups), *self.sums[name].shape[1:])
            total = zeros(name, shape, weighted=weighted)
            for table in (self, other):
                at = [groups.index(g) for g in table.groups]
                total[at] += table.sums[name] if total.dtype == object else table[name]
            sums[name] = total
        return AuditTable(groups, self.labels, self.n_bins, weighted, sums)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AuditTable):
            return NotImplemented
        return (
            (self.groups, self.labels, self.n_bins, self.weighted)
            == (other.groups, other.labels, other.n_bins, other.weighted)
            and self.sums.keys() == other.sums.keys()
            and all(np.array_equal(self.sums[name], other.sums[name]) for name in self.sums)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        rows = int(self.sums["rows"].sum())
        return (
            f"AuditTable({rows:,} rows{', weighted' * self.weighted}, groups={self.groups!r}, "
            f"labels={self.labels!r}, n_bins={self.n_bins})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain numbers, strings and lists, ready for JSON."""
        return {
            "format": "equipoise.AuditTable/1",
            "groups": [to_plain(g) for g in self.groups],
            "labels": [to_plain(v) for v in self.labels],
            "n_bins": self.n_bins,
            "weighted": self.weighted,
            "sums": {name: array.tolist() for name, array in self.sums.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AuditTable:
        """Read what `to_dict` wrote; anything else is refused."""
        if not isinstance(data, Mapping) or data.get("format") != "equipoise.AuditTable/1":
            raise ValueError("not an audit table: expected 'format': 'equipoise.AuditTable/1'")
        try:
            groups = tuple(from_plain(g) for g in data["groups"])
            labels = tuple(from_plain(v) for v in data["labels"])
            n_bins, weighted, raw = data["n_bins"], data["weighted"], dict(data["sums"])
            check_bins(n_bins)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"damaged audit table: {error!r}") from None
        blocks = {SUMS[name].block for name in raw if name in SUMS} | {"rows"}
        if raw.keys() != {name for name, spec in SUMS.items() if spec.block in blocks}:
            raise ValueError(f"damaged audit table: sums {sorted(raw)}")
        for what, values in (("groups", groups), ("labels", labels)):
            if len(set(values)) < max(1, len(values)):
                raise ValueError(f"damaged audit table: {what} {values!r}")
        if not isinstance(weighted, bool):
            raise ValueError(f"damaged audit table: weighted is {weighted!r}")
        size = {"k": len(labels), "b": n_bins}
        sums = {}
        for name, values in raw.items():
            shape = (len(groups), *(size[axis] for axis in SUMS[name].axes))
            kind = zeros(name, (), weighted=weighted).dtype
            array = np.array(values, dtype=object)
            numbers = (int, float) if kind == np.float64 else int
            if array.shape != shape or not all(
                isinstance(v, numbers) and not isinstance(v, bool) and 0 <= v < float("inf")
                for v in array.ravel()
            ):
                raise ValueError(f"damaged audit table: {name} is not {shape} sums")
            sums[name] = array.astype(kind)
        return cls(groups, labels, n_bins, weighted, sums)
