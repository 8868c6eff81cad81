"""The description of a sweep, and how it is cut into parts."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import inspect
import itertools
import json
import os
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise._files import restoring
from equipoise.datasets import Dataset
from equipoise.training import LOSSES, Config, Loss, train_stack

if TYPE_CHECKING:
    import pyarrow as pa

RUNS = 128
"""Runs of a part at most: four chunks of the engine, some minutes on one core."""

FORMAT = 1
"""Raised when the same description gives other numbers or other parts, so that old parts are not
reused."""

MOST = 2**30
"""Largest whole number: they are stored in 32 bits, and controls add to seeds."""

CONTROL_STEP = 1000
"""The j-th control of seed s starts from the weights of seed s + 1000 j."""


def _number(value: Any) -> bool:
    # whole numbers have no end: one of 400 digits is no number of 64 bits
    plain = isinstance(value, float | int) and not isinstance(value, bool)
    return plain and 0 <= value <= sys.float_info.max


def _whole(value: Any) -> bool:
    return isinstance(value, int) and _number(value)


def _count(value: Any) -> bool:
    return _whole(value) and 0 < value <= MOST


def _weights(value: Any) -> bool:
    several = value if isinstance(value, tuple) else (value,)
    return len(several) > 0 and all(_number(x) and x <= 1 for x in several)


_LISTS = ("loss", "rho", "lam", "seeds", "hidden_layer_sizes")
_COUNT = (_count, "a whole number from 1 to 2**30")
_SWITCH = (lambda x: isinstance(x, bool), "true or false")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "dataset": (lambda x: isinstance(x, str) and x != "", "a name"),
    "loss": (lambda x: isinstance(x, str), "names"),
    "rho": (_weights, "numbers within 0..1"),
    "lam": (_number, "numbers from 0 on"),
    "seeds": (lambda x: _whole(x) and x <= MOST, "whole numbers from 0 to 2**30"),
    "controls": _COUNT,
    "max_epochs": _COUNT,
    "batch_size": _COUNT,
    "hidden_layer_sizes": (_count, "whole numbers from 1 to 2**30"),
    "output_relu": _SWITCH,
    "learning_rate": (lambda x: _number(x) and x > 0, "a number above 0"),
    "stratify": _SWITCH,
}


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A grid of runs on one dataset.

    Attributes
    ----------
    dataset
        A name that `equipoise.datasets.load` knows; any other name where the data is passed along.
    loss
        Losses to train with.
    rho
        Weights of group 1, or tuples with a weight per group. The ungrouped loss (ce) runs once.
    lam
        Strengths of the added term. Losses without one (ls, fl, flsd) run once for each rho.
    seeds
        Each fixes the split, the order of the batches and the initial weights.
    controls
        Runs of plain cross-entropy for each seed, each from other initial weights: the control for
        the best of as many runs of another loss.
    max_epochs, batch_size, hidden_layer_sizes, output_relu, learning_rate
        Training and network, as in `equipoise.training.train_stack`.
    stratify
        Whether the splits are stratified by label and group.
    """

    dataset: str
    loss: tuple[str, ...] = tuple(LOSSES)
    rho: tuple[float | tuple[float, ...], ...] = (0.5,)
    lam: tuple[float, ...] = (1.0,)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    controls: int = 1
    max_epochs: int = 500
    batch_size: int = 256
    hidden_layer_sizes: tuple[int, ...] = (128, 64)
    output_relu: bool = False
    learning_rate: float = 1e-4
    stratify: bool = False

    def __post_init__(self) -> None:
        for field in _LISTS:
            value = getattr(self, field)
            if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
                raise ValueError(f"{field} must be a list, got {value!r}")
            whole = tuple(tuple(v) if isinstance(v, list) else v for v in value)
            if not whole:
                raise ValueError(f"{field} is empty; name at least one")
            object.__setattr__(self, field, whole)
        for field, (good, what) in _RULES.items():
            value = getattr(self, field)
            bad = [x for x in (value if field in _LISTS else [value]) if not good(x)]
            if bad:
                raise ValueError(f"{field} must be {what}, got {bad[0]!r}")
        if len({len(v) if isinstance(v, tuple) else None for v in self.rho}) > 1:
            raise ValueError(
                f"rho must be all numbers, or all lists with a weight per group, got {self.rho}"
            )
        for field in ("loss", "rho", "lam", "seeds"):
            values = getattr(self, field)
            if len(set(values)) < len(values):
                raise ValueError(f"{field} names something twice: {list(values)}")
        if self.controls > 1 and "ce" not in self.loss:
            raise ValueError("controls are runs of ce; add it to loss")
        # 1 and 1.0 are the same number, and give the same key
        rhos = (tuple(map(float, v)) if isinstance(v, tuple) else float(v) for v in self.rho)
        object.__setattr__(self, "rho", tuple(rhos))
        object.__setattr__(self, "lam", tuple(map(float, self.lam)))
        object.__setattr__(self, "learning_rate", float(self.learning_rate))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Sweep:
        """Make a sweep of plain values; an unknown name is refused."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"a sweep has no {unknown[0]!r}; it has {', '.join(known)}")
        if "dataset" not in values:
            raise ValueError("a sweep needs a dataset; name one")
        return cls(**values)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Sweep:
        """Read a sweep from a TOML file."""
        with restoring(os.fspath(path)):
            return cls.from_dict(tomllib.loads(Path(path).read_text("utf-8")))

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as plain values, ready for JSON or TOML."""
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[no-any-return]

    def configs(self, seed: int, losses: Mapping[str, Loss] = LOSSES) -> list[Config]:
        """Return the runs of one seed."""
        unknown = [t for t in self.loss if t not in losses]
        if unknown:
            raise ValueError(f"unknown loss {unknown[0]!r}; there are {', '.join(losses)}")
        found = []
        for name in self.loss:
            loss = losses[name]
            rhos = self.rho if loss.grouped else (None,)
            lams = self.lam if loss.added else (1.0,)
            found += [
                Config(name, rho, lam, seed, self.learning_rate)
                for rho, lam in itertools.product(rhos, lams)
            ]
            if not loss.grouped:
                found += [
                    Config(name, None, 1.0, seed + CONTROL_STEP * j, self.learning_rate)
                    for j in range(1, self.controls)
                ]
        return found

    def parts(self, data: Dataset, losses: Mapping[str, Loss] = LOSSES) -> list[RunPart]:
        """Cut the sweep into parts of at most `RUNS` runs, all of one split and of equal size."""
        mark, n_groups = fingerprint(data), len(data.group_names)
        wrong = [v for v in self.rho if isinstance(v, tuple) and len(v) != n_groups]
        if wrong:
            raise ValueError(
                f"{self.dataset} has {n_groups} groups, but rho has {list(wrong[0])}; "
                "give a weight for each"
            )
        found = []
        for seed in self.seeds:
            configs = self.configs(seed, losses)
            number = -(-len(configs) // RUNS)
            found += [
                RunPart(self, seed, tuple(configs[i] for i in cut), mark)
                for cut in np.array_split(np.arange(len(configs)), number)
            ]
        return found


_SHARED = (
    "dataset", "max_epochs", "batch_size", "hidden_layer_sizes", "output_relu", "stratify",
)  # fmt: skip
"""Fields of a sweep that all its runs depend on."""


@dataclasses.dataclass(frozen=True)
class RunPart:
    """Some runs of a sweep that share a split: the unit of work, and one file of the store."""

    sweep: Sweep
    seed: int
    configs: tuple[Config, ...]
    data: str

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.configs)

    @property
    def steps(self) -> int:
        """Runs x epochs."""
        return len(self.configs) * self.sweep.max_epochs

    @property
    def title(self) -> str:
        """The part in a few words."""
        names = list(dict.fromkeys(c.loss for c in self.configs))
        return f"{self.sweep.dataset}, seed {self.seed}, {' '.join(names)}"

    def table(
        self,
        data: Dataset,
        losses: Mapping[str, Loss],
        step: Callable[[int, int], None] | bool = False,
    ) -> pa.Table:
        """Train and measure the runs on one core; return a row per run and epoch."""
        from equipoise.sweep._store import to_table

        sweep = self.sweep
        result = train_stack(
            data.split(self.seed, stratify=sweep.stratify),
            self.configs,
            max_epochs=sweep.max_epochs,
            batch_size=sweep.batch_size,
            hidden_layer_sizes=sweep.hidden_layer_sizes,
            output_relu=sweep.output_relu,
            split_seed=self.seed,
            workers=1,
            losses=losses,
            progress=step,
        )
        return to_table(result, sweep, self.seed, losses)

    @property
    def key(self) -> str:
        """A hash of all that the numbers depend on."""
        sweep = self.sweep.to_dict()
        what = {
            "format": FORMAT,
            "data": self.data,
            "split_seed": self.seed,
            "configs": [dataclasses.asdict(c) for c in self.configs],
            **{name: sweep[name] for name in _SHARED},
        }
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]


def meanings(losses_named: Iterable[str], losses: Mapping[str, Loss]) -> dict[str, str]:
    """Return a hash of each loss that is not the library's own.

    It covers the source of the loss's function and its attributes, not the functions it calls.
    """
    found = {}
    for name in losses_named:
        loss = losses[name]
        if loss is not LOSSES.get(name):
            about = (_text(loss.term), loss.form, loss.added, loss.constants, loss.grouped)
            found[name] = hashlib.sha256(repr(about).encode()).hexdigest()[:20]
    return found


def _text(function: Callable[..., Any]) -> str:
    """Return a function's source without comments and docstring, or its name without a source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return getattr(function, "__qualname__", repr(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def fingerprint(data: Dataset) -> str:
    """Return a hash of the features, labels and groups of a dataset."""
    return fingerprint_of((data.X, data.y, data.group))


def fingerprint_of(arrays: Iterable[NDArray[Any]]) -> str:
    """Return a hash of arrays of numbers."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:20]
