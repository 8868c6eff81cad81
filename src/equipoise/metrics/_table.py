"""The audit table: a small table of sums from which every metric follows.

Sums are kept per group x class, per group x confidence bin, and per group x class x bin, so a
table's size does not depend on the number of rows. Without weights they are exact: counts are
integers, and each probability p enters as the integer floor(p * 2**32 + 0.5), so sums do not
depend on the order of the rows or on where they were added. With weights they are float64.
Where rows have weights or clusters, second moments over units (rows or clusters) come with them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._inputs import (
    check_bins,
    check_clusters,
    check_weights,
    class_count,
    column_labels,
    column_names,
    encode_groups,
    encode_labels,
    matrix,
    probability_slice,
    same_length,
    too_many_groups,
)
from equipoise.metrics._checks import refuse_impossible
from equipoise.metrics._saved import fingerprint_of, plain_table, read_table
from equipoise.metrics._sums import (
    BLOCKS,
    CELLS,
    FLUSH,
    ROWS,
    SUMS,
    UNLABELLED,
    Fill,
    argmax,
    chosen_blocks,
    zeros,
)
from equipoise.metrics._units import Array, features, of_single_rows, over_clusters


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AuditTable:
    """Sums per group, class and bin; the tables of different rows can be added with ``+``.

    Tables with clusters are added with `add`, since a cluster may have rows in both.

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
    clustered
        Whether rows belong to clusters. Then the sums over units are of clusters, not of rows.
    pooled_units
        With clusters, the sums over units where all groups are one: a cluster may be in several.
    sources
        Fingerprints of the saved tables that it was read from or added up from.

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
    clustered: bool = False
    pooled_units: Mapping[str, Array] | None = None
    sources: frozenset[str] = frozenset()

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
        clusters: Any = None,
        most_groups: int | None = None,
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
        clusters
            Id of the cluster that each row belongs to, such as a person with several rows.
        most_groups
            Largest number of groups; more are refused before any row is summed up.
        """
        given_blocks = chosen_blocks(
            blocks, weighted=sample_weight is not None, clustered=clusters is not None
        )
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
        elif given_blocks <= UNLABELLED and labels is not None:
            resolved = column_labels((), k, labels=labels)
        else:
            raise ValueError("y_true is None; only rates of predictions need no labels")
        pred = None if y_pred is None else encode_labels(y_pred, k, resolved, "y_pred")[0]
        if sensitive_features is not None:
            group, groups = encode_groups(sensitive_features)
            if most_groups is not None and len(groups) > most_groups:
                raise too_many_groups("sensitive_features", most_groups, len(groups))
        same_length(n, y_true=y, y_pred=pred, sensitive_features=group)
        weight = check_weights(sample_weight, n)
        cluster = check_clusters(clusters, n)
        of_rows = given_blocks if cluster is None else given_blocks - {"units"}
        fill = Fill(of_rows, len(groups), k, int(n_bins), weighted=weight is not None)
        step = min(ROWS, max(256, CELLS // k))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            given: list[Any] = [None if v is None else v[rows] for v in (y, pred, group, weight)]
            fill.add(probability_slice(prob, rows, int(n_bins)), *given)
        sums, pooled = fill.finished(), None
        if cluster is not None and "units" in given_blocks:

            def read(rows: Array) -> dict[str, Array]:
                p = probability_slice(prob[rows], slice(0, len(rows)), int(n_bins))
                own: list[Any] = [None if v is None else v[rows] for v in (y, pred, weight)]
                top = argmax(p)[1]
                return features(
                    p, own[0].astype(np.int64), top if pred is None else own[1], top, own[2]
                )

            sums |= over_clusters(read, cluster, group, len(groups))
            pooled = over_clusters(read, cluster, None, 1)
        return cls(
            tuple(groups),
            tuple(resolved),
            int(n_bins),
            weight is not None,
            sums,
            cluster is not None,
            pooled,
        )

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
        chosen = chosen_blocks(blocks, weighted=weighted)
        fill = Fill(chosen, configs * len(groups), k, n_bins, weighted=weighted)
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
        if self.pooled_units is not None:
            sums |= self.pooled_units
        elif self.clustered and "unit_count" in sums and len(self.groups) > 1:
            raise ValueError(
                "these are some groups of a clustered table, and a cluster may be in several of "
                "them; pool the whole table"
            )
        return dataclasses.replace(self, groups=(None,), sums=sums)

    def only(self, groups: slice) -> AuditTable:
        """Return the table of some of the groups, by their positions."""
        sums = {}
        for name, array in self.sums.items():
            index: Any = (..., groups, *(slice(None) for _ in SUMS[name].axes))
            sums[name] = array[index]
        chosen = self.groups[groups]
        pooled = self.pooled_units if chosen == self.groups else None
        return dataclasses.replace(
            self, groups=chosen, sums=sums, pooled_units=pooled, sources=frozenset()
        )

    def as_weighted(self) -> AuditTable:
        """Return an unweighted table as that of the same rows with weights of 1."""
        if self.weighted:
            return self
        own = {SUMS[name].block for name in self.sums} - {"units"}
        blocks = chosen_blocks(own, weighted=True, clustered=self.clustered)
        sums = {name: v if name == "rows" else self[name] for name, v in self.sums.items()}
        if "weights" in blocks:
            sums["bin_gap1"] = sums["bin_correct"] - sums["bin_confidence"]
            sums["class_count2"] = sums["class_count"]
            sums["class_gap1"] = sums["class_correct"] - sums["class_probability"]
        if "units" in blocks and not self.clustered:
            sums |= of_single_rows(sums)
        return dataclasses.replace(self, weighted=True, sums=sums)

    def __add__(self, other: AuditTable) -> AuditTable:
        return self.add(other) if isinstance(other, AuditTable) else NotImplemented

    def add(self, other: AuditTable, *, disjoint_clusters: bool = False) -> AuditTable:
        """Return the table of the rows of both.

        Parameters
        ----------
        other
            Table of other rows, with the same labels, bins and blocks.
        disjoint_clusters
            Promise that no cluster has rows in both tables, which clustered tables need.
        """
        return AuditTable.total([self, other], disjoint_clusters=disjoint_clusters)

    @classmethod
    def total(cls, tables: Sequence[AuditTable], *, disjoint_clusters: bool = False) -> AuditTable:
        """Return the table of the rows of all, in time linear in their groups.

        Parameters
        ----------
        tables
            One or more tables of different rows, with the same labels, bins and blocks.
        disjoint_clusters
            As in `add`.
        """
        first, *more = tables
        for other in more:
            first._check_alike(other, disjoint_clusters=disjoint_clusters)
        if not more:
            return first
        if len({table.weighted for table in tables}) > 1:
            first, *more = tables = [table.as_weighted() for table in tables]
        if any(table.sums.keys() != first.sums.keys() for table in more):
            raise ValueError("tables filled with different blocks cannot be added")
        groups = _all_groups([table.groups for table in tables])
        place = {group: i for i, group in enumerate(groups)}
        at = [[place[group] for group in table.groups] for table in tables]
        sums = {}
        for name, own in first.sums.items():
            sums[name] = zeros(name, (len(groups), *own.shape[1:]), weighted=first.weighted)
            for table, where in zip(tables, at, strict=True):
                sums[name][where] += table.sums[name]
        every = [table.pooled_units for table in tables if table.pooled_units is not None]
        pooled = None
        if len(every) == len(tables):
            pooled = {name: np.sum([units[name] for units in every], axis=0) for name in every[0]}
        return dataclasses.replace(
            first,
            groups=groups,
            sums=sums,
            pooled_units=pooled,
            sources=frozenset().union(*(table.sources for table in tables)),
        )

    def _check_alike(self, other: AuditTable, *, disjoint_clusters: bool) -> None:
        for what in ("labels", "n_bins"):
            mine, theirs = getattr(self, what), getattr(other, what)
            if mine != theirs:
                raise ValueError(
                    f"tables with different {what} cannot be added: {mine!r} and {theirs!r}; "
                    f"fill both with the same {what}="
                )
        if self.clustered != other.clustered:
            raise ValueError(
                "a table with clusters and one without cannot be added; fill both with clusters="
            )
        if self.clustered and not disjoint_clusters:
            raise ValueError(
                "tables with clusters cannot be added with +: a cluster may have rows in both, and "
                "these would count as independent; audit all rows together, or, if no cluster is "
                "in both, use a.add(b, disjoint_clusters=True)"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AuditTable):
            return NotImplemented
        return (
            (self.groups, self.labels, self.n_bins, self.weighted, self.clustered)
            == (other.groups, other.labels, other.n_bins, other.weighted, other.clustered)
            and _same(self.sums, other.sums)
            and _same(self.pooled_units or {}, other.pooled_units or {})
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        rows = int(self.sums["rows"].sum())
        return (
            f"AuditTable({rows:,} rows{', weighted' * self.weighted}"
            f"{', clustered' * self.clustered}, groups={self.groups!r}, "
            f"labels={self.labels!r}, n_bins={self.n_bins})"
        )

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of its sums, and a name: the same for two tables of the same rows."""
        return fingerprint_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain numbers, strings and lists, ready for JSON.

        A digest shows whether it was changed; `sources` has its own fingerprint, and those of the
        saved tables that it was added up from.
        """
        return plain_table(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AuditTable:
        """Read what `to_dict` wrote; anything else is refused, and so are sums that no rows have.

        >>> saved = AuditTable.from_arrays([0, 1], [0.2, 0.7]).to_dict()
        >>> AuditTable.from_dict({**saved, "n_bins": 14})
        Traceback (most recent call last):
        ValueError: damaged audit table: its digest does not match, so it was changed; ...
        """
        table = cls(**read_table(data))
        refuse_impossible(table)
        return table


def _all_groups(each: Sequence[tuple[Hashable, ...]]) -> tuple[Hashable, ...]:
    """Return the groups of all tables: those of the first if it has all, else in sorted order."""
    groups = dict.fromkeys(group for own in each for group in own)
    if len(groups) == len(each[0]):
        return each[0]
    try:
        return tuple(sorted(groups))  # type: ignore[type-var]
    except TypeError:
        one, other = _unlike(list(groups))
        raise ValueError(f"groups {one!r} and {other!r} are of different kinds") from None


def _unlike(groups: Sequence[Any]) -> tuple[Any, Any]:
    """Return two groups that cannot be sorted."""
    for group in groups:
        try:
            _ = group < groups[0]
        except TypeError:
            return groups[0], group
    return groups[0], groups[-1]


def _same(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)
