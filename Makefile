# Every target sets up .venv by itself when pyproject.toml or constraints.txt has changed.
PYTHON ?= python3
BIN := .venv/bin
# constraints.txt asks for the CPU build of torch; see the README for machines without it.
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check bench docs clean

demo: .venv/.ready  ## the paper's tables on two datasets, beside the published ones
	@$(BIN)/equipoise reproduce --grid quick

test: .venv/.ready  ## all tests; ARGS=--cov measures coverage, which takes half as long again
	$(BIN)/pytest $(ARGS)

check: .venv/.ready  ## format, lint, types, import flow
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.ready-bench  ## speed beside other libraries and a plain loop
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/search.py

docs: .venv/.ready  ## README, guides, reference and results as a site
	$(BIN)/sphinx-build -q -W -c docs . build/docs
	@echo "The documentation: build/docs/index.html"

.venv/.ready: pyproject.toml constraints.txt
	@echo "Setting up .venv (about a minute, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP_INSTALL) -e ".[dev]"
	@touch $@
	@echo "... done."

.venv/.ready-bench: .venv/.ready
	@echo "Installing the libraries to compare with ..."
	@$(PIP_INSTALL) -e ".[dev,bench]"
	@touch $@

clean:  ## remove what the other targets made, but for runs/
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage .hypothesis build dist
