"""Running the missing parts of studies, and reading their results."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from equipoise._files import writing_to
from equipoise.datasets import Dataset
from equipoise.paper._snippet import TECHNIQUES
from equipoise.paper._study._design import Study, studies
from equipoise.paper._study._digest import FORMAT, StudyDigest, study_digest
from equipoise.paper._study._part import plan_study
from equipoise.sweep import fingerprint, run
from equipoise.training import Bar


def study_folder(out: Path) -> Path:
    """Return the folder of the digests of all studies, within that of the results."""
    return out / "decisive"


def chosen_studies(names: Sequence[str]) -> dict[str, Study]:
    """Return the studies of some datasets, or named ones, or all.

    >>> list(chosen_studies(["german"]))
    ['german-linear', 'german-relu']
    """
    known = studies()
    for name in names:
        if name not in known and name not in {s.dataset for s in known.values()}:
            datasets = dict.fromkeys(s.dataset for s in known.values())
            raise ValueError(
                f"the grid 'decisive' has no dataset {name!r}; it has {', '.join(datasets)}, each "
                "alone or with its network, as in german-linear"
            )
    return {k: s for k, s in known.items() if not names or k in names or s.dataset in names}


def reproduce_study(
    study: Study,
    data: Dataset,
    runs: str | os.PathLike[str],
    results: Path,
    *,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> StudyDigest:
    """Run the missing parts of a study, and write its digest.

    `runs` is the folder of its parts, `results` that of all digests. A digest that is there, of the
    same study and data, is not made again. The other options are those of `equipoise.sweep.run`.
    """
    folder = results / study.name
    if (found := _finished(study, data, folder)) is not None:
        return found
    store, work = plan_study(study, runs, data)
    run(work, losses=TECHNIQUES, engine=engine, address=address, workers=workers, progress=progress)
    say(f"{study.name}: calibrating and measuring {len(work)} splits")
    runs_in_all = study.splits * len(study.arms)
    with Bar(progress, study.splits + 2 * study.repeats, runs_in_all, study.name) as advance:
        found = study_digest(study, store, work, data, advance)
    with writing_to(results, "Finished runs are safe: give the same command again to go on"):
        found.save(folder)
    return found


def _finished(study: Study, data: Dataset, folder: Path) -> StudyDigest | None:
    """Return the digest of a folder, if it is that of this study and these rows."""
    if not (folder / "facts.json").exists():
        return None
    found = StudyDigest.load(folder)
    about = (found.facts["study"], found.facts["data"]["fingerprint"], found.facts["format"])
    return found if about == (study.to_dict(), fingerprint(data), FORMAT) else None


def saved_studies(results: Path) -> list[StudyDigest]:
    """Return the digests of the registered studies that a folder holds, in their order."""
    found = []
    for name, study in studies().items():
        if (results / name / "facts.json").exists():
            digest = StudyDigest.load(results / name)
            if digest.facts["study"] != study.to_dict():
                raise ValueError(
                    f"{results / name} holds results of another design; choose another folder with "
                    "--out"
                )
            found.append(digest)
    return found
