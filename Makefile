# Every target prepares what it needs in .venv, so each works on a fresh machine with Python 3.11+.
# Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python

.DEFAULT_GOAL := help
KERNEL_TESTS := $(addprefix tests/compiler/test_, gemm_small.py gemm_epilogue.py pooling.py \
	reductions.py recurrent.py attention_tiles.py vecmath.py)

.PHONY: train chat serve test test-avx2 lint types bench bench-all bench-breadth bench-ops soak world docs stubs clean help
# Two installations at once would spoil one environment.
.NOTPARALLEL:

train: $(VENV)/app.stamp ## train a small GPT on the text every Python ships
	$(VENV)/bin/evergrad train

chat: $(VENV)/app.stamp ## talk to a small model, which is trained first if there is none
	$(VENV)/bin/evergrad chat

serve: $(VENV)/app.stamp ## the same model as a page and with OpenAI's API
	$(VENV)/bin/evergrad chat --web

test: $(VENV)/test.stamp $(VENV)/app.stamp $(VENV)/mpi.stamp $(VENV)/docs.stamp oracle test-avx2 ## run the tests on all cores
	$(PY) -m pytest -n auto

# Kernels for processors without AVX-512, on any machine that has AVX2; EVERGRAD_TARGET=x86-64-v2
# does the same for SSE4.
test-avx2: $(VENV)/test.stamp oracle ## run the kernel tests for AVX2 (a minute)
	@if [ "$$(uname -m)" != x86_64 ] || ! grep -qw avx2 /proc/cpuinfo; then \
		echo 'note: no AVX2 here; its kernel tests are left out.'; \
	else \
		EVERGRAD_TARGET=x86-64-v3 $(PY) -m pytest -n auto -q $(KERNEL_TESTS); \
	fi

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

bench-breadth: $(VENV)/bench.stamp $(VENV)/app.stamp ## time workloads of many kinds against PyTorch
	$(PY) -m bench.breadth.run

bench-ops: $(VENV)/bench.stamp ## time single ops and the overhead per op against PyTorch
	$(PY) bench/overhead.py
	$(PY) bench/ops.py
	$(PY) bench/linalg.py

soak: $(VENV)/test.stamp $(VENV)/app.stamp $(VENV)/mpi.stamp oracle ## run the long tests, one at a time
	$(PY) -m pytest tests/soak -p no:xdist

# Packages live in WORLD, outside of the repository; `make world ARGS=--core` runs the core of ten.
WORLD ?= $(HOME)/.cache/evergrad-world
world: $(VENV)/test.stamp oracle ## run packages of the PyTorch world and compare with PyTorch
	$(PY) tools/world.py --cache $(WORLD) $(ARGS)

docs: $(VENV)/app.stamp $(VENV)/docs.stamp ## generate the reference and build the site in build/site
	$(PY) docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo 'open build/site/index.html'

stubs: $(VENV)/app.stamp ## generate the type stubs
	$(PY) tools/generate_stubs.py

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
