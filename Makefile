# make run   measure on this machine and write tables, figures and a report into results/
# make test  linters, types and every test that this machine can run
# make bench the benchmarks: what the pipeline itself costs
# make clean remove what these commands made
#
# `make run ARGS="--config 'strategies=[mps,mig]'"` passes arguments on to snakemake.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: run test lint bench clean

run: $(VENV)/run.stamp
	@$(BIN)/snakemake $(ARGS)

test: lint
	@$(BIN)/pytest --ignore=tests/pipeline
	@$(BIN)/pytest -n 2 tests/pipeline

lint: $(VENV)/dev.stamp
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/snakefmt --check Snakefile rules
	@$(BIN)/mypy scripts
	@$(BIN)/snakemake --lint --quiet

bench: $(VENV)/dev.stamp
	@for benchmark in benchmarks/*.py; do echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

clean:
	@$(PYTHON) scripts/clean.py

$(VENV)/bin/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and \
	f'needs Python 3.11 or newer, {sys.executable} is {sys.version.split()[0]}; name another: make PYTHON=python3.12')"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: envs/sharebench.txt | $(VENV)/bin/python
	@echo "setting up $(VENV) from $< (once, a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(VENV)/dev.stamp: envs/dev.txt | $(VENV)/bin/python
	@echo "setting up $(VENV) from $< (once, a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@ $(VENV)/run.stamp
