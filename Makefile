# Every target prepares what it needs in .venv, so each works on a fresh machine with Python 3.11+.
# Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: train test lint types bench bench-all bench-ops soak docs clean help
# Two installations at once would spoil one environment.
.NOTPARALLEL:

train: $(VENV)/app.stamp ## train a small GPT on the text every Python ships
	$(VENV)/bin/evergrad train

test: $(VENV)/test.stamp $(VENV)/app.stamp oracle ## run the tests on all cores
	$(PY) -m pytest -n auto

lint: $(VENV)/test.stamp ## check style and formatting
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

# The app extra is needed here so that mypy sees the types of its libraries.
types: $(VENV)/test.stamp $(VENV)/app.stamp ## check types
	$(PY) -m mypy

# The app extra draws the plot.
bench: $(VENV)/bench.stamp $(VENV)/app.stamp ## time training steps against peers
	$(PY) -m bench.peers.run

bench-all: bench ## and scaling, two Python threads, a shared machine
	$(PY) -m bench.peers.scaling
	$(PY) -m bench.peers.two_threads
	$(PY) -m bench.peers.shared_machine

bench-ops: $(VENV)/bench.stamp ## time single ops and the overhead per op against PyTorch
	$(PY) bench/overhead.py
	$(PY) bench/ops.py
	$(PY) bench/linalg.py

soak: $(VENV)/test.stamp $(VENV)/app.stamp oracle ## run the long tests, one at a time
	$(PY) -m pytest tests/soak -p no:xdist

docs: $(VENV)/app.stamp ## generate the documentation
	$(PY) docs/generate.py

clean: ## remove build results and caches, keep .venv
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Set-up. The stamp of an extra is newer than pyproject.toml once that extra is installed.

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'evergrad needs Python 3.11 or newer: make PYTHON=python3.11 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/%.stamp: pyproject.toml | $(PY)
	$(PY) -m pip install --quiet --editable '.[$*]'
	@touch $@

# PyTorch is the reference of many tests, not a requirement: where it cannot be installed, they skip.
.PHONY: oracle
oracle: | $(PY)
	@$(MAKE) --no-print-directory $(VENV)/oracle.stamp || printf '%s\n' \
		'note: PyTorch 2.13.0 could not be installed; the tests that compare with it will skip.'
