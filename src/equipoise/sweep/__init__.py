"""Sweeps: a grid of runs on a dataset, stored in parts that an interruption does not lose.

::

    sweep = Sweep("compas", loss=("ce", "mmce"), rho=(0.4, 0.5), lam=(1.0, 5.0))
    store, work = plan(sweep, "runs/compas", load("compas"))
    run(work)
    store.query("select loss, min(val_pe) from runs group by loss")

A sweep that was stopped or killed runs only the missing parts when it is run again.
"""

from equipoise.sweep._execution import Step, Work, check_engine, plan, run, run_stages
from equipoise.sweep._folder import OtherFolder, PartFolder
from equipoise.sweep._grid import (
    CONTROL_STEP,
    RunPart,
    Sweep,
    fingerprint,
    fingerprint_of,
    meanings,
)
from equipoise.sweep._part_file import damage, encode, processor, versions, write_part
from equipoise.sweep._store import Store

__all__ = [
    "CONTROL_STEP",
    "OtherFolder",
    "PartFolder",
    "RunPart",
    "Step",
    "Store",
    "Sweep",
    "Work",
    "check_engine",
    "damage",
    "encode",
    "fingerprint",
    "fingerprint_of",
    "meanings",
    "plan",
    "processor",
    "run",
    "run_stages",
    "versions",
    "write_part",
]
