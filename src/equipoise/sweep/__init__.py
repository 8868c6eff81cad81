"""Sweeps: a grid of runs on a dataset, stored in parts that an interruption does not lose.

::

    sweep = Sweep("compas", loss=("ce", "mmce"), rho=(0.4, 0.5), lam=(1.0, 5.0))
    store, work = plan(sweep, "runs/compas", load("compas"))
    run(work)
    store.query("select loss, min(val_pe) from runs group by loss")

A sweep that was stopped or killed runs only the missing parts when it is run again.
"""

from equipoise.sweep._execution import Work, plan, run
from equipoise.sweep._grid import CONTROL_STEP, RunPart, Sweep, fingerprint
from equipoise.sweep._store import Store, encode, is_damaged, processor, versions

__all__ = [
    "CONTROL_STEP",
    "RunPart",
    "Store",
    "Sweep",
    "Work",
    "encode",
    "fingerprint",
    "is_damaged",
    "plan",
    "processor",
    "run",
    "versions",
]
