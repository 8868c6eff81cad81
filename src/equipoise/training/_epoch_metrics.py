"""Measuring a stack of networks on the parts of a split, before and after temperatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.calibration import Problem, solve
from equipoise.datasets import Part, Split
from equipoise.metrics import METRICS, AuditTable, stacked_proportional_equality
from equipoise.training._network import StackedMLP
from equipoise.training._run_columns import CALIBRATIONS, run_column
from equipoise.training._scaling import BOUNDS

Floats = NDArray[np.float64]

GATHERED = 16
"""Batches that are gathered at once: by then the rows have left the cache between two batches."""


class RowTensors:
    """Features, classes, groups and weights of some rows, as tensors."""

    def __init__(self, part: Part, device: str, dtype: torch.dtype) -> None:
        self.X = torch.from_numpy(np.ascontiguousarray(part.X)).to(device, dtype)
        self.y = torch.from_numpy(part.y).to(device)
        self.group = torch.from_numpy(part.group).to(device)
        self.weight = None
        if part.weight is not None:
            self.weight = torch.from_numpy(part.weight).to(device, dtype)

    def batches(self, order: Tensor, size: int) -> Iterator[RowTensors]:
        """Return the rows in an order, `size` of them at a time."""
        columns = [self.X, self.y, self.group]
        if self.weight is not None:
            columns.append(self.weight)
        for some in torch.split(order, size * GATHERED):
            gathered = [values.index_select(0, some) for values in columns]
            for X, y, group, *weight in zip(*(torch.split(v, size) for v in gathered), strict=True):
                batch = object.__new__(RowTensors)
                batch.X, batch.y, batch.group = X, y, group
                batch.weight = weight[0] if weight else None
                yield batch

    @property
    def size(self) -> float:
        """The number of rows, or their weight."""
        return float(len(self.y)) if self.weight is None else float(self.weight.double().sum())


def logits_of(network: StackedMLP, X: Tensor, batch_size: int) -> Tensor:
    """Return the logits (config, n, class) in float64."""
    # in slices the size of a batch, whose buffers are in the cache
    slices = [network.forward(x) for x in torch.split(X, batch_size)]
    return torch.cat(slices, dim=1).double()


class Measure:
    """Metrics of a chunk on the validation and test parts, before and after temperatures."""

    def __init__(
        self,
        split: Split,
        n_classes: int,
        device: str,
        dtype: torch.dtype,
        measured: Sequence[str],
        batch_size: int,
        reference: int = 0,
    ) -> None:
        self.batch_size = batch_size
        self.parts = {name: getattr(split, name) for name in measured}
        rows = {name: RowTensors(part, device, dtype) for name, part in self.parts.items()}
        self.val = rows["val"]
        self.X = torch.cat([r.X for r in rows.values()])
        self.member = torch.cat([r.group for r in rows.values()])
        self.sizes = [len(r.y) for r in rows.values()]
        groups = [split.train.group, split.val.group, split.test.group]
        self.n_groups = int(max(g.max(initial=0) for g in groups)) + 1
        self.groups = tuple(range(self.n_groups))
        self.labels = tuple(range(n_classes))
        train = split.train
        cell = train.group * n_classes + train.y
        count = np.bincount(cell, train.weight, self.n_groups * n_classes).reshape(-1, n_classes)
        with np.errstate(invalid="ignore"):
            self.rates = count / count.sum(1, keepdims=True)
        # PE compares with the first group of a table, so tables have the reference first
        self.order = [reference, *(g for g in self.groups if g != reference)]
        self.place = np.argsort(self.order)
        self.rates = self.rates[self.order]
        self.start: tuple[Any, Any] = (1.0, 1.0)

    def __call__(self, network: StackedMLP) -> tuple[dict[str, Floats], Tensor]:
        """Return the columns, each (config,), and which configurations are finite."""
        logits = logits_of(network, self.X, self.batch_size)
        finite = torch.isfinite(logits).all(-1).all(-1)
        logits = torch.where(finite[:, None, None], logits, 0.0)
        by_part = dict(zip(self.parts, torch.split(logits, self.sizes, dim=1), strict=True))
        common, own = self._temperatures(by_part["val"])
        found = {"temperature": common[:, 0].cpu().numpy()}
        for g in self.groups:
            found[f"temperature_{g}"] = own[:, g].cpu().numpy()
        for name, z in by_part.items():
            dead = (z == 0).all(-1).double().cpu().numpy()
            found[run_column(name, "dead")] = np.average(dead, -1, self.parts[name].weight)
        # all rows and all three calibrations at once: at these sizes calls cost more than numbers;
        # and with the classes first, because softmax over a last axis of two is slow
        z = logits.movedim(-1, 0).contiguous()
        prob = torch.cat([z, z / common, z / own[:, self.member]], dim=1).softmax(0)
        return found | self._figures(prob.cpu().numpy()), finite

    def _temperatures(self, z: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.val
        whole = Problem.of(z, rows.y, rows.weight, 1.0 / BOUNDS[0])
        common = solve(whole, BOUNDS, self.start[0]).temperature
        split = whole.divided(rows.group, self.n_groups)
        own = solve(split, BOUNDS, self.start[1]).temperature
        self.start = (common, own)  # the next epoch's are close by
        return common.unsqueeze(-1), own.reshape(len(z), self.n_groups)

    def _figures(self, prob: Floats) -> dict[str, Floats]:
        """Measure (class, calibration x config, row), the rows of all parts one after another."""
        parts, n_groups = list(self.parts.values()), self.n_groups
        y = np.concatenate([part.y for part in parts])
        # a group of each part, so that one table holds all parts
        group = np.concatenate(
            [self.place[part.group] + i * n_groups for i, part in enumerate(parts)]
        )
        weights = [part.weight for part in parts]
        known: dict[str, Any] = {
            "groups": tuple(range(len(parts) * n_groups)),
            "labels": self.labels,
            "sample_weight": None if weights[0] is None else np.concatenate(weights),
        }
        sums = ["bins", "rates", "scores", "decisions", "hits"]
        fifteen = AuditTable.from_stack(prob, y, group, n_bins=15, blocks=sums, **known)
        ten = AuditTable.from_stack(prob, y, group, n_bins=10, blocks=["bins"], **known)
        found = {}
        for i, name in enumerate(self.parts):
            own = slice(i * n_groups, (i + 1) * n_groups)
            table, tens = fifteen.only(own), ten.only(own)
            pooled = table.pooled()
            by_metric = {
                "ece15": METRICS["ece"].of(pooled)[:, 0],
                "ece10": METRICS["ece"].of(tens.pooled())[:, 0],
                "log_loss": METRICS["log_loss"].of(pooled)[:, 0],
                "pe": stacked_proportional_equality(table, self.rates, "stochastic"),
            }
            for g, values in zip(self.order, METRICS["ece"].of(table).T, strict=True):
                by_metric[f"ece15_{g}"] = values
            for metric, values in by_metric.items():
                for how, each in zip(CALIBRATIONS, np.split(values, 3), strict=True):
                    found[run_column(name, metric, how)] = each
            # temperatures change neither of these
            configs = prob.shape[1] // 3
            found[run_column(name, "accuracy")] = METRICS["accuracy"].of(pooled)[:configs, 0]
            found[run_column(name, "pe_deterministic")] = stacked_proportional_equality(
                table, self.rates, "deterministic"
            )[:configs]
        return found
