"""The carried datasets have the sizes and rates of the paper's Table 2, as far as they match."""

import numpy as np
import pytest

from equipoise.datasets import load


@pytest.mark.parametrize(
    ("name", "size", "columns", "share", "rates"),
    [
        ("german", 1000, 60, 0.851, (0.591, 0.719)),
        ("compas", 5278, 10, 0.602, (0.609, 0.477)),
    ],
)
def test_sizes_and_rates(name, size, columns, share, rates):
    data = load(name)
    assert data.X.shape == (size, columns) == (len(data.y), len(data.feature_names))
    assert data.X.dtype == np.float32
    assert set(data.y.tolist()) == set(data.group.tolist()) == {0, 1}
    assert data.group.mean() == pytest.approx(share, abs=5e-4)
    for g in (0, 1):
        assert data.y[data.group == g].mean() == pytest.approx(rates[g], abs=5e-4)
    assert len(data.class_names) == len(data.group_names) == 2
    assert len(set(data.feature_names)) == columns


def test_the_group_of_german_is_not_among_its_features():
    assert not any("age" in name.split("=")[0].split("_") for name in load("german").feature_names)


def test_one_hot_columns_add_up_to_one():
    data = load("compas")
    for feature in ("age", "priors", "charge"):
        columns = [n.startswith(feature + "=") for n in data.feature_names]
        assert (data.X[:, columns].sum(axis=1) == 1).all()


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown dataset 'titanic'; there are compas, german"):
        load("titanic")
