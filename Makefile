# The two commands of the README are `make demo` and `make test`; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
export PYTHONDONTWRITEBYTECODE =
export PYTHONPATH =

.PHONY: help demo test test-gpu check proof docs bench results clean chromium

help:                      ## List the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: $(VENV)/.run         ## Install into .venv and run the main job: train on the embedded graph.
	$(BIN)/muse train debian --out runs/demo --overwrite

test: check chromium       ## Everything CI checks, in under eight minutes on two cores.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q

proof: check chromium      ## As test, with the full counts of kills and corruptions.
	OMP_NUM_THREADS=1 MUSEGNN_PROOF=1 $(BIN)/python -m pytest -q

# Pages are opened in a real browser, a system package: installed where that is allowed, and done without elsewhere.
APT := DEBIAN_FRONTEND=noninteractive timeout 120 apt-get -qqy
chromium:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	  command -v $$name >/dev/null && exit 0; done; \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "Installing Chromium ..." && \
	  { $(APT) install chromium || { $(APT) update && $(APT) install chromium; }; } >/dev/null 2>&1; } || \
	  echo "No Chromium here, and none that may be installed: the browser check is skipped."

# A machine with a GPU is often bare: no .venv, no network, no plugins of pytest.
GPU_TESTS := tests/ops/test_descend_triton.py tests/ops/test_reweigh_triton.py tests/ops/test_settle_triton.py \
  tests/ops/test_move_means.py tests/unfolding/test_gpu_kernel.py tests/unfolding/test_typed_bfloat16.py \
  tests/unfolding/test_typed_steps.py::test_a_gpu_says_the_same \
  tests/features/test_homes.py tests/training/test_outcome.py tests/cli/test_evaluate.py::test_a_gpu_says_the_same \
  tests/inference/test_full_graph.py::test_a_model_on_another_device

test-gpu:                  ## All that tests GPU code, on a GPU, with what PYTHON has installed.
	@$(PYTHON) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || \
	  { echo "make test-gpu needs a GPU that the torch of $(PYTHON) can see, and finds none. make test needs none." >&2; exit 2; }
	PYTHONPATH=src TRITON_INTERPRET=0 $(PYTHON) -m pytest -q -rs -p no:xdist -p no:cacheprovider \
	  -o addopts="--strict-markers" $(GPU_TESTS)

check: $(VENV)/.dev        ## Format, lint, types, import contract.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.dev         ## Build the pages of docs/ into site/; a broken link is an error.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Look at it: open site/index.html, or $(BIN)/mkdocs serve, in which the search works, too."

bench: $(VENV)/.dev        ## Measure again what benchmarks/ measures here (two hours, 35 GB of disk).
	$(BIN)/python benchmarks/import.py --record
	$(BIN)/python benchmarks/synthetic.py --scale 0.01 --record
	$(BIN)/python benchmarks/propagate.py --record
	$(BIN)/python benchmarks/training.py epoch --record
	$(BIN)/python benchmarks/training.py memory --record
	$(BIN)/python benchmarks/explain.py --record
	for command in modes growth means; do $(BIN)/python benchmarks/features.py $$command --record || exit; done
	for command in messages steps predict; do $(BIN)/python benchmarks/scaling.py $$command --record || exit; done
	for command in peers stages storage workers sizes open start plot; do \
	  $(BIN)/python benchmarks/sampling.py $$command --record || exit; done

results: $(VENV)/.dev      ## Write benchmarks/RESULTS.md from benchmarks/results.json.
	$(BIN)/python benchmarks/render.py

clean:                     ## Remove the virtual environment.
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "musegnn needs Python 3.11 or newer, got $$($(PYTHON) --version). Try: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "Python could not create a virtual environment. On Debian: apt install python3-venv" >&2; exit 2; }

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing musegnn into $(VENV) (a few minutes the first time) ..."
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing musegnn and its development tools into $(VENV) (a few minutes the first time) ..."
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.run
