# Every target sets up .venv by itself when pyproject.toml or constraints.txt has changed.
PYTHON ?= python3
BIN := .venv/bin
# constraints.txt asks for the CPU build of torch; see the README for machines without it.
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-fast floors check bench repair choice statements docs lock clean

demo: .venv/.ready  ## the paper's tables on two datasets, beside the published ones
	@$(BIN)/equipoise reproduce --grid quick

test: .venv/.ready  ## all tests; ARGS=--cov measures coverage, which takes half as long again
	$(BIN)/pytest $(ARGS)

test-fast: .venv/.ready  ## the tests that take a moment, under two minutes in all
	$(BIN)/pytest -m "not slow and not cluster" $(ARGS)

floors: .venv-floors/.ready  ## the fast tests of what does not train, with the oldest libraries allowed
	EQUIPOISE_WITHOUT_TORCH=1 .venv-floors/bin/pytest -m "not slow and not cluster" \
		-W ignore::DeprecationWarning -W ignore::FutureWarning $(ARGS) tests \
		$(addprefix src/equipoise/,_inputs _files metrics auditing calibration datasets plots)

check: .venv/.ready  ## format, lint, types, import flow
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.ready-bench  ## speed beside other libraries and a plain loop
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/predict.py
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/search.py

repair: .venv/.ready-bench  ## the repair of probabilities beside its peers, into docs/repair.md
	$(BIN)/python benchmarks/repair.py --markdown docs/repair.md

choice: .venv/.ready  ## what a search chooses, and its error rates, into docs/choice.md
	$(BIN)/python benchmarks/choice.py --markdown docs/choice.md

statements: .venv/.ready  ## error rates of every statement of an audit, into docs/statements.md
	$(BIN)/python benchmarks/statements.py --markdown docs/statements.md

docs: .venv/.ready  ## README, guides, reference and results as a site
	$(BIN)/sphinx-build -q -W -c docs . build/docs
	@echo "The documentation: build/docs/index.html"

# PyTorch and what its CUDA build brings are not locked: the CPU build has other hashes
UNLOCKED := torch triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-,cublas \
	cuda-cupti cuda-nvrtc cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse \
	cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx)

lock:  ## versions and hashes of the development environment, into requirements-dev.lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet uv
	build/lock/bin/uv pip compile pyproject.toml --quiet --extra dev -c constraints.txt \
		--generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header \
		$(addprefix --no-emit-package ,$(UNLOCKED)) -o requirements-dev.lock

.venv/.ready: pyproject.toml constraints.txt
	@echo "Setting up .venv (about a minute, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP_INSTALL) -e ".[dev]"
	@touch $@
	@echo "... done."

.venv-floors/.ready: pyproject.toml tools/floors.py
	@echo "Setting up .venv-floors (about a minute, once) ..."
	@test -x .venv-floors/bin/python || $(PYTHON) -m venv .venv-floors
	@$(PYTHON) tools/floors.py plot polars > .venv-floors/constraints.txt
	@.venv-floors/bin/pip install --quiet --disable-pip-version-check -c .venv-floors/constraints.txt \
		-e ".[plot,polars]" pytest hypothesis
	@touch $@

.venv/.ready-bench: .venv/.ready
	@echo "Installing the libraries to compare with ..."
	@$(PIP_INSTALL) -e ".[dev,bench]"
	@touch $@

clean:  ## remove what the other targets made, but for runs/
	rm -rf .venv .venv-floors .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage .hypothesis build dist
