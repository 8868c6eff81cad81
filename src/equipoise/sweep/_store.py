"""A folder with the results of a sweep, and the table of a part."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise.sweep._folder import PartFolder, damaged
from equipoise.sweep._grid import FORMAT, Sweep, meanings
from equipoise.training import LOSSES, Config, Loss, StackResult

if TYPE_CHECKING:
    import pyarrow as pa


class Store(PartFolder):
    """The folder of one sweep on one dataset.

    Parameters
    ----------
    folder
        Made where it does not exist.
    sweep
        The sweep that it is for; a folder with another sweep is refused. None opens a folder that
        exists, whatever sweep it holds.
    data
        The fingerprint of the data.
    losses
        The loss that each name stands for.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        sweep: Sweep | None = None,
        data: str = "",
        losses: Mapping[str, Loss] = LOSSES,
    ) -> None:
        about = None
        if sweep is not None:
            own = meanings(sweep.loss, losses)
            about = {"sweep": sweep.to_dict(), "data": data, "format": FORMAT, "losses": own}
        super().__init__(folder, "sweep", about, "" if sweep is None else sweep.dataset)
        try:
            self.sweep, self.data = Sweep.from_dict(self.about["sweep"]), str(self.about["data"])
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
            raise damaged(self.folder / "sweep.json", error) from None


def to_table(
    result: StackResult, sweep: Sweep, split_seed: int, losses: Mapping[str, Loss] = LOSSES
) -> pa.Table:
    """Return a row per run and epoch; rho and lam are null where they have no effect."""
    import pyarrow as pa

    runs, epochs = result.columns["diverged"].shape
    which = np.repeat(np.arange(runs), epochs)

    def each(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(which))

    def has(config: Config, attribute: str) -> bool:
        return bool(getattr(losses[config.loss], attribute))

    configs = result.configs
    rhos = [c.rho if has(c, "grouped") else None for c in configs]
    # decided by the sweep, not by these runs: all parts have the same columns
    several = any(isinstance(rho, tuple) for rho in sweep.rho)
    kind = pa.list_(pa.float64()) if several else pa.float64()
    columns: dict[str, pa.Array] = {
        "dataset": pa.array([sweep.dataset] * len(which)).dictionary_encode(),
        "loss": each([c.loss for c in configs], pa.string()).dictionary_encode(),
        "rho": each(rhos, kind),
        "lam": each([c.lam if has(c, "added") else None for c in configs], pa.float64()),
        "split_seed": pa.array(np.full(len(which), split_seed), pa.int32()),
        "seed": each([c.seed for c in configs], pa.int32()),
        "epoch": pa.array(np.tile(np.arange(1, epochs + 1), runs), pa.int32()),
    }
    for name, values in result.columns.items():
        flat = values.ravel()
        if name == "diverged":
            columns[name] = pa.array(flat != 0)
        else:
            # accuracies are compared with a slack, so exact; they are few values, in a dictionary
            kind = pa.float64() if name.endswith("accuracy") else pa.float32()
            columns[name] = pa.array(flat).cast(kind, safe=False)
    return pa.table(columns)
