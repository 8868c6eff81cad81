"""Folders for the rows of the table of faults."""

import pytest
from fault_harness import prepare


@pytest.fixture(scope="session")
def with_model(tmp_path_factory):
    """A folder with predictions, audit, calibrator and model."""
    folder = tmp_path_factory.mktemp("with_model")
    prepare(folder, model=True)
    return folder


@pytest.fixture(scope="session")
def without_model(tmp_path_factory):
    """The same without the model, which takes seconds."""
    folder = tmp_path_factory.mktemp("without_model")
    prepare(folder, model=False)
    return folder


@pytest.fixture
def prepared(request, fault):
    """The folder that a row begins with."""
    return request.getfixturevalue("with_model" if fault.needs_model else "without_model")


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
