"""Distribution functions without scipy.special, beside scipy.special."""

import subprocess
import sys

import duckdb
import numpy as np
import pytest
from packaging.version import Version
from scipy import special

from equipoise.auditing import _distributions as ours

RNG = np.random.default_rng(0)
P = np.concatenate([[1e-9, 1e-6, 1e-4, 0.5, 0.975, 1 - 1e-9], RNG.random(200)])


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch):
    """Keep scipy.special out of it, though these tests have imported it."""
    monkeypatch.setattr(ours, "by_scipy", lambda *_args, **_options: None)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_normal():
    x = np.linspace(-30, 30, 401)
    close(ours.ndtr(x), special.ndtr(x))
    close(ours.ndtri(P), special.ndtri(P))
    assert ours.ndtri([0.0, 1.0]).tolist() == [-np.inf, np.inf]
    assert np.isnan(ours.ndtri(np.nan))
    assert ours.ndtri(0.975).shape == ()


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 15])
def test_chi2(freedom):
    x = np.concatenate([[0.0, 1e-12], RNG.gamma(2.0, 10.0, 200), [600.0, 1e9, np.inf]])
    found = ours.chi2_tail(np.full(len(x), freedom), x)
    close(found, special.gammaincc(freedom / 2, x / 2))


@pytest.mark.parametrize("size", [2.0, 40.0, 3_000.0, 19_000.0])
def test_beta(size):
    share = RNG.random(len(P))
    a, b = np.maximum(share * size, 0.3), np.maximum((1 - share) * size, 0.3)
    x = special.betaincinv(a, b, P)
    np.testing.assert_allclose(ours.betainc(a, b, x), special.betainc(a, b, x), rtol=1e-9)
    np.testing.assert_allclose(ours.betaincinv(a, b, P), x, rtol=1e-9)
    assert ours.betainc(2.0, 3.0, [0.0, 1.0]).tolist() == [0.0, 1.0]


def test_student():
    freedom = np.concatenate([[1.0, 1.5, 2.0, 9e3, 6e4, 1e7, 1e9], RNG.gamma(1.0, 50.0, 50) + 1])
    for p in (0.6, 0.975, 0.9995, 0.1):
        np.testing.assert_allclose(ours.stdtrit(freedom, p), special.stdtrit(freedom, p), rtol=1e-9)


def test_scipy_is_asked_once_it_is_worth_it():
    code = (
        "import sys; from equipoise.auditing import _distributions as d\n"
        "d.spare_scipy(); d.ndtri(0.975); assert 'scipy' not in sys.modules\n"
        "assert abs(d.betainc(3e5, 3e5, 0.5) - 0.5) < 1e-9; assert 'scipy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_in_python_the_same_audit_gives_the_same_intervals():
    code = (
        "import numpy as np; from equipoise import audit; rng = np.random.default_rng(0)\n"
        "p = rng.random(900); y = (rng.random(900) < p) * 1; g = rng.choice(list('abc'), 900)\n"
        "found = [audit(y, p, sensitive_features=g).intervals for _ in range(12)]\n"
        "assert all(one == found[0] for one in found)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_small_audit_imports_neither_scipy_nor_pandas(tmp_path):
    if Version(duckdb.__version__) < Version("2"):
        pytest.skip("before DuckDB 2, its Python part imports pandas")
    rows = "".join(f"{i % 2},{(i * 7 % 100) / 100},{'fm'[i % 3 % 2]}\n" for i in range(1_000))
    (tmp_path / "p.csv").write_text("y,p,sex\n" + rows)
    code = (
        "import sys; from equipoise.cli import main\n"
        "try: main(['audit', 'p.csv', '--label', 'y', '--prob', 'p', '--group', 'sex'])\n"
        "except SystemExit: pass\n"
        "heavy = {'scipy', 'pandas', 'sklearn', 'torch', 'polars'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
