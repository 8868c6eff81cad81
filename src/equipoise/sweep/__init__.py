"""Sweeps: a grid of runs on a dataset, cut into parts that survive anything.

::

    sweep = Sweep("compas", techniques=("ce", "mmce"), rhos=(0.4, 0.5), lams=(1.0, 5.0))
    store, work = plan(sweep, "runs/compas", load("compas"))
    run(work)
    store.query("select technique, min(val_pe) from runs group by technique")

A sweep that was stopped, or killed, does only what is missing when it is run again.
"""

from equipoise.sweep.plan import RunPart, Sweep, fingerprint
from equipoise.sweep.run import Work, plan, run
from equipoise.sweep.store import Store

__all__ = ["RunPart", "Store", "Sweep", "Work", "fingerprint", "plan", "run"]
