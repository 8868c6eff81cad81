"""Speed of the engine beside a plain PyTorch loop that does the same work for one run at a time.

    make bench    (after benchmarks/core.py)
    python benchmarks/engine.py [--quick] [--data FOLDER]

The plain loop: torch.nn, autograd, fused Adam, batch 256, the same metrics after every epoch, and
temperatures per group and in common by LBFGS, or by the paper's recipe. Both get two threads, on
Adult's shape (1,515 x 97).

Training without measuring is compared with what the machine's matrix products allow: the useful
floating-point operations per second of two chunks at a time, against those of large square
products, both measured in turns. Written to benchmarks/results/engine.json.
"""

import argparse
import itertools
import json
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from equipoise import GroupTemperatureScaling, TemperatureScaling
from equipoise.datasets import Part, Preprocessor, Split, load
from equipoise.training import (
    CHUNK,
    LOSSES,
    Config,
    GroupwiseLoss,
    run_in_threads,
    train_stack,
    train_to_best,
)
from equipoise.training._chunk_losses import ChunkLosses
from equipoise.training._engine import StackTrainer
from equipoise.training._epoch_metrics import RowTensors
from equipoise.training._network import Adam, StackedMLP

RESULTS = Path(__file__).parent / "results" / "engine.json"
SIZES = (97, 128, 64, 2)
BATCH = 256

# the paper's grid: how many values of rho each dataset has; 12 of lambda, 5 seeds
RHOS = {
    "adult": 9,
    "arrhythmia": 5,
    "communities": 8,
    "compas": 6,
    "drug": 12,
    "german": 11,
    "lawschool": 5,
}
RUNS = {name: 5 * (1 + 3 * n + 4 * 12 * n) for name, n in RHOS.items()}
EPOCHS = 500


# rows of the training, validation and test parts, and columns
ADULT, COMPAS = ((1515, 252, 253), SIZES[0]), ((3959, 659, 660), 10)


def made_up(sizes: tuple[int, ...] = ADULT[0], columns: int = ADULT[1], seed: int = 0) -> Split:
    """Return made-up rows of a dataset's shape, so that the benchmark needs no data."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=columns) / 5
    parts = []
    for n in sizes:
        X = rng.normal(size=(n, columns)).astype(np.float32)
        group = (rng.random(n) < 0.74).astype(np.int64)
        y = (X @ direction + group - 0.7 + rng.logistic(size=n) > 0).astype(np.int64)
        parts.append(Part(X, y, group, np.arange(n)))
    names = [f"x{j}" for j in range(columns)]
    return Split(*parts, Preprocessor.fit(parts[0].X, names))


# --- the plain loop --------------------------------------------------------------------------


def lbfgs(logits: torch.Tensor, y: torch.Tensor) -> float:
    """Return the temperature by LBFGS, as calibration code commonly has it."""
    log_t = torch.zeros((), requires_grad=True)
    optimiser = torch.optim.LBFGS([log_t], max_iter=20, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits / log_t.exp(), y)
        loss.backward()
        return loss

    optimiser.step(closure)
    return log_t.detach().exp().item()


def plain_ece(confidence: np.ndarray, correct: np.ndarray, n_bins: int) -> float:
    """Return the ECE of a few hundred rows."""
    bins = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)
    gap = np.bincount(bins, correct - confidence, n_bins)
    return float(np.abs(gap).sum() / len(bins))


def plain_metrics(prob: np.ndarray, y: np.ndarray, group: np.ndarray, rates: np.ndarray) -> dict:
    """Return every metric that the engine gives for one set of probabilities."""
    confidence, top = prob.max(1), prob.argmax(1)
    correct = (top == y).astype(float)
    found = {f"ece{m}": plain_ece(confidence, correct, m) for m in (10, 15)}
    soft, hard = [], []
    for g in (0, 1):
        own = group == g
        found[f"ece15_{g}"] = plain_ece(confidence[own], correct[own], 15)
        soft.append(prob[own].mean(0))
        hard.append(np.bincount(top[own], minlength=2) / own.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        for name, q in (("pe", soft), ("pe_deterministic", hard)):
            found[name] = np.fmax.reduce(np.abs(rates[1] / rates[0] - q[1] / q[0]))
    found["accuracy"] = correct.mean()
    found["log_loss"] = -np.log(prob[np.arange(len(y)), y]).mean()
    return found


def plain_loop(split: Split, config: Config, *, paper: bool = False) -> Iterator[dict]:
    """Train one run and measure it after every epoch."""
    torch.manual_seed(config.seed)
    layers: list[torch.nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(SIZES):
        layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1])
    adam = torch.optim.Adam(net.parameters(), lr=1e-4, eps=1e-7, fused=True)
    loss = GroupwiseLoss(config.loss, config.rho, config.lam)
    X, y, group = (torch.from_numpy(v) for v in (split.train.X, split.train.y, split.train.group))
    count = np.bincount(2 * split.train.group + split.train.y, minlength=4).reshape(2, 2)
    rates = count / count.sum(1, keepdims=True)
    parts = {"val": split.val, "test": split.test}
    inputs = {name: torch.from_numpy(part.X) for name, part in parts.items()}
    target, member = torch.from_numpy(split.val.y), torch.from_numpy(split.val.group)
    while True:
        for rows in torch.randperm(len(y)).split(BATCH):
            adam.zero_grad()
            loss(net(X[rows]), y[rows], group[rows]).backward()
            adam.step()
        with torch.no_grad():
            logits = {name: net(x) for name, x in inputs.items()}
        val = logits["val"]
        if paper:
            z = val.double().numpy()
            common = TemperatureScaling(solver="paper").fit(z, split.val.y).temperature_
            scaling = GroupTemperatureScaling(solver="paper")
            scaling.fit(z, split.val.y, sensitive_features=split.val.group)
            own = [scaling.temperatures_[g] for g in (0, 1)]
        else:
            common = lbfgs(val, target)
            own = [lbfgs(val[member == g], target[member == g]) for g in (0, 1)]
        found = {}
        for name, part in parts.items():
            per_row = torch.tensor(own)[torch.from_numpy(part.group)].unsqueeze(1)
            for how, t in (("", 1.0), ("common", common), ("group", per_row)):
                prob = (logits[name].double() / t).softmax(-1).numpy()
                found[name, how] = plain_metrics(prob, part.y, part.group, rates)
        yield found


# --- timing ----------------------------------------------------------------------------------


def per_epoch(epochs: Iterator[object], warm: int, timed: int) -> float:
    """Return the median seconds of an epoch."""
    for _ in range(warm):
        next(epochs)
    seconds = []
    for _ in range(timed):
        start = time.perf_counter()
        next(epochs)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def stack_rate(split: Split, configs: list[Config], epochs: int) -> float:
    """Return the engine's seconds per run and epoch."""
    start = time.perf_counter()
    train_stack(split, configs, max_epochs=epochs)
    return (time.perf_counter() - start) / len(configs) / epochs


def step_against_products() -> tuple[float, float]:
    """Return the seconds of a training step, and of its eight batched products alone."""
    torch.set_num_threads(1)
    d, h1, h2, k = SIZES
    network = StackedMLP(SIZES, range(CHUNK))
    adam = Adam(network.parameters(), 1e-4)
    rows = RowTensors(made_up((BATCH,) * 3).train, "cpu", torch.float32)
    losses = ChunkLosses([Config("ce")] * CHUNK, "cpu", torch.float32, LOSSES)
    X = rows.X

    def step() -> None:
        network.backward(X, lambda logits: losses.slope(logits, rows)[1])
        adam.step()

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(CHUNK, *shape)

    x = X.expand(CHUNK, BATCH, d)
    w1, a1, w2, a2 = tensor(d, h1), tensor(BATCH, h1), tensor(h1, h2), tensor(BATCH, h2)
    w3, d3, d2, d1 = tensor(k, h2), tensor(k, BATCH), tensor(BATCH, h2), tensor(BATCH, h1)
    products = [(x, w1), (a1, w2), (w3, a2.mT), (d3, a2), (d3.mT, w3), (a1.mT, d2), (d2, w2.mT),
                (x.mT, d1)]  # fmt: skip
    outs = [torch.bmm(a, b) for a, b in products]

    def only_products() -> None:
        for (a, b), out in zip(products, outs, strict=True):
            torch.bmm(a, b, out=out)

    best = [float("inf"), float("inf")]
    for _ in range(30):
        for i, run in enumerate((step, only_products)):
            start = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - start)
    torch.set_num_threads(2)
    return best[0], best[1]


def of_two_threads(work: Callable[[int], None]) -> float:
    """Return the seconds in which two threads, with one of torch's threads each, do their work."""
    start = time.perf_counter()
    run_in_threads(work, (0, 1), 2, threading.Event())
    return time.perf_counter() - start


def product_limit(size: int = 1536, repeats: int = 4) -> float:
    """Return the GFLOP/s of square products: one at a time on two cores, or one on each."""
    a, b, out = (torch.randn(2, size, size) for _ in range(3))

    def one() -> float:
        start = time.perf_counter()
        torch.mm(a[0], b[0], out=out[0])
        return 1 / (time.perf_counter() - start)

    def work(i: int) -> None:
        for _ in range(repeats):
            torch.mm(a[i], b[i], out=out[i])

    per_second = max(*(one() for _ in range(repeats)), 2 * repeats / of_two_threads(work))
    return 2 * size**3 * per_second / 1e9


def training_rate(split: Split, epochs: int, chunk: int = CHUNK) -> Callable[[], float]:
    """Return a function that trains on, two chunks at a time, and gives the GFLOP/s.

    Only the products that training needs are counted: in each layer one forward, one for the
    gradient of the weights, and, but for the first layer, one for the gradient of the inputs.
    """
    configs = [Config("ce", seed=s) for s in range(chunk)]
    trainers = [StackTrainer(split.train, configs, n_classes=SIZES[-1]) for _ in range(2)]
    sizes = (split.train.X.shape[1], *SIZES[1:])
    first, *others = (a * b for a, b in itertools.pairwise(sizes))
    per_row = 2 * (2 * first + 3 * sum(others))

    def work(i: int) -> None:
        for _ in range(epochs):
            trainers[i].epoch()

    useful = 2 * chunk * epochs * len(split.train.y) * per_row
    return lambda: useful / of_two_threads(work) / 1e9


def share_of_limit(split: Split, repeats: int) -> tuple[float, float]:
    """Return the best GFLOP/s of training, and of products; in turns, as others use the machine."""
    train = training_rate(split, max(1, 6000 // len(split.train.y)))
    train()
    pairs = [(train(), product_limit()) for _ in range(repeats)]
    reached, limit = zip(*pairs, strict=True)
    return max(reached), max(limit)


def best_rate(split: Split, epochs: int) -> float:
    """Return the seconds per run and epoch of `train_to_best`, two chunks at a time."""
    configs = [Config("ce", seed=s) for s in range(CHUNK)]
    seconds = of_two_threads(
        lambda _: train_to_best(split, configs, max_epochs=epochs, patience=epochs)
    )
    return seconds / 2 / CHUNK / epochs


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs and epochs")
    shared = Path(__file__).parents[2] / "shared" / "datasets"
    parser.add_argument(
        "--data",
        default=str(shared) if shared.exists() else None,
        help="folder with the raw datasets, for the projected grid",
    )
    options = parser.parse_args()
    quick = options.quick
    torch.set_num_threads(2)
    console = Console(width=110)
    split = made_up()
    rows: list[tuple[str, float, str, float | None, bool]] = []

    def add(what: str, value: float, unit: str, target: float | None = None, *,
            most: bool = False) -> None:  # fmt: skip
        rows.append((what, value, unit, target, most))
        console.print(f"{what}: {value:.3g} {unit}")

    runs, epochs = (32, 3) if quick else (128, 8)
    train_stack(split, [Config()], max_epochs=1)  # imports of torch's own
    for loss, target in (("ce", 12.0), ("mmce", 20.0)):
        configs = [Config(loss, 0.5, 2.0, seed=s) for s in range(runs)]
        ours = stack_rate(split, configs, epochs)
        plain = per_epoch(plain_loop(split, configs[0]), 2, 3 if quick else 10)
        paper = per_epoch(plain_loop(split, configs[0], paper=True), 1, 2 if quick else 4)
        ours = min(ours, stack_rate(split, configs, epochs))
        add(f"{loss}: engine, per run and epoch", ours * 1e3, "ms")
        add(f"{loss}: plain loop with LBFGS", plain * 1e3, "ms")
        add(f"{loss}: plain loop with the paper's recipe", paper * 1e3, "ms")
        add(f"{loss}: LBFGS loop / engine", plain / ours, "times", target)
        add(f"{loss}: paper's loop / engine", paper / ours, "times", target)
    step, products = step_against_products()
    add("training step: share of time in its products alone", products / step, "", 0.55)

    for name, shape, target in (("Adult", ADULT, 0.65), ("COMPAS", COMPAS, 0.45)):
        reached, limit = share_of_limit(made_up(*shape), 5 if quick else 20)
        add(f"products alone, two cores, beside {name}", limit, "GFLOP/s")
        add(f"{name}'s shape: training without measuring", reached, "GFLOP/s")
        add(f"{name}'s shape: share of what the products allow", reached / limit, "", target)
        best = min(best_rate(made_up(*shape), 8) for _ in range(2 if quick else 5))
        add(f"{name}'s shape: training to the best epoch, per run and epoch", best * 1e3, "ms")

    counts = (32, 256) if quick else (32, 500, 2000)
    rates = [stack_rate(split, [Config("ce", seed=s) for s in range(n)], 2) for n in counts]
    for n, rate in zip(counts, rates, strict=True):
        add(f"{n} runs at once, per run and epoch", rate * 1e3, "ms")
    add(f"cost per run, {counts[-1]} against {counts[1]} at once", rates[-1] / rates[1], "times",
        1.25, most=True)  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    add("peak memory", peak, "GB", 4.0, most=True)

    project(options.data, add, quick=quick)
    finish(console, rows)


def project(folder: str | None, add: Callable, *, quick: bool) -> None:
    """Estimate the paper's whole grid from a few epochs on each dataset."""
    total = 0.0
    names = ["ls", "fl", "flsd", *["dca", "mdca", "mmce", "mmce-w"] * 12]
    for name, runs in RUNS.items():
        try:
            split = load(name, data_dir=folder).split(0)
        except (OSError, ValueError) as error:
            print(f"{name} is not here, so the grid is not projected: {error}")
            return
        configs = [Config(names[i % len(names)], 0.5, 2.0, i) for i in range(64)]
        rate = stack_rate(split, configs, 1 if quick else 4)
        total += rate * runs * EPOCHS
        add(f"{name}: {runs:,} runs, per run and epoch", rate * 1e3, "ms")
    add(f"projected: {sum(RUNS.values()):,} runs x {EPOCHS} epochs", total / 3600, "hours", 4.0,
        most=True)  # fmt: skip


def finish(console: Console, rows: list[tuple[str, float, str, float | None, bool]]) -> None:
    """Print the targets and write everything."""
    table = Table(title="Targets", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("", "measured", "target", ""):
        table.add_column(name, justify="right" if name else "left")
    written = []
    for what, value, unit, target, most in rows:
        held = None if target is None else (value <= target if most else value >= target)
        written.append({"what": what, "value": value, "unit": unit, "target": target, "held": held})
        if target is not None:
            mark = "[green]held[/]" if held else "[red]missed[/]"
            table.add_row(what, f"{value:.2f} {unit}", f"{target:g}", mark)
    console.print(table)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(written, indent=2))
    console.print(f"Written to benchmarks/{RESULTS.parent.name}/{RESULTS.name}")


if __name__ == "__main__":
    main()
