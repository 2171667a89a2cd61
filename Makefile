# Each target installs what it needs, once, and says the size first. `make` alone lists them.
PYTHON ?= python3
MODEL  ?= smollm2-135m
ARGS   ?=
PYTEST_ARGS ?= -n 2 --dist loadfile
export PYTHON TORCH_INDEX_URL

BIN     := .venv/bin
RUNTIME := .venv/runtime.stamp
LEARN   := .venv/learn.stamp
PINS    := pyproject.toml constraints.txt tools/install.sh tools/kernels_guard.py

# A virtual environment knows its own path and cannot be moved.
ifneq ($(wildcard .venv/root),)
ifneq ($(shell cat .venv/root),$(CURDIR))
$(error This folder was moved or copied with its .venv, which cannot follow. Remove it with `rm -rf .venv` and run make again)
endif
endif

.DEFAULT_GOAL := help
.PHONY: help setup serve pull test notebooks gpu site docs-serve lint engines clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{printf "%-12s %s\n", $$1, $$2}'

setup: $(LEARN) ## make .venv with everything to learn and test
	@echo "Ready. Enter the environment with:  . .venv/bin/activate"

serve: $(RUNTIME) ## fetch a model, once, and serve it with a chat page (MODEL=smollm2-135m, ARGS="--port 8080")
	$(BIN)/minillm serve "$(MODEL)" $(ARGS)

pull: $(RUNTIME) ## fetch the model into the cache, once
	$(BIN)/minillm pull "$(MODEL)"

test: $(LEARN) pull ## run the tests, on the real model, and every notebook again (PYTEST_ARGS="-k evidence")
	$(BIN)/pytest -p nbval.plugin --nbval --nbval-current-env --nbval-cell-timeout=120 $(PYTEST_ARGS)

notebooks: $(LEARN) pull ## run every notebook of the course, and write what it prints
	$(BIN)/python tools/notebooks.py run --all
	$(BIN)/python tools/notebooks.py check --all

gpu: $(RUNTIME) ## check and time the kernels and minillm on an NVIDIA GPU, in 6 minutes (needs one; ARGS="--quick": in 1)
	@$(BIN)/python benchmarks/gpu.py $(ARGS)

site: $(LEARN) ## build the site into site/, strictly (SITE_OFFLINE=true: one that opens from files)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(LEARN) ## show the site while you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

test-site: $(LEARN) ## drive the pages in Chromium (needs it installed; CHROMIUM=path if it is not found)
	$(BIN)/pytest -m browser -n 2 --dist loadfile

lint: $(LEARN) ## check style, the recorded results and the exercises' stubs
	$(BIN)/ruff check .
	$(BIN)/python tools/results.py
	$(BIN)/python -m labs.kit.stubs --check

engines: $(RUNTIME) ## install another engine to compare with, in its own environment (NAME=llama.cpp; without NAME: a list)
	@$(BIN)/python -m shared.engines $(if $(NAME),"$(NAME)")

clean: ## remove build leftovers; keeps .venv, the model cache, .labs and everything you wrote
	rm -rf build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -path ./.git -prune -o -name __pycache__ -type d -exec rm -rf {} +

$(RUNTIME): $(PINS)
	@tools/install.sh runtime
	@touch $@

$(LEARN): $(RUNTIME)
	@tools/install.sh learn
	@touch $@
