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
.PHONY: help setup serve pull test lint engines clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{printf "%-12s %s\n", $$1, $$2}'

setup: $(LEARN) ## make .venv with everything to learn and test
	@echo "Ready. Enter the environment with:  . .venv/bin/activate"

serve: $(RUNTIME) ## fetch a model, once, and serve it with a chat page (MODEL=smollm2-135m, ARGS="--port 8080")
	$(BIN)/minillm serve "$(MODEL)" $(ARGS)

pull: $(RUNTIME) ## fetch the model into the cache, once
	$(BIN)/minillm pull "$(MODEL)"

test: $(LEARN) pull ## run the tests, on the real model (PYTEST_ARGS="-k evidence")
	$(BIN)/pytest $(PYTEST_ARGS)

test-site: $(LEARN) ## drive the pages in Chromium (needs it installed; CHROMIUM=path if it is not found)
	$(BIN)/pytest -m browser

lint: $(LEARN) ## check style and the recorded results
	$(BIN)/ruff check .
	$(BIN)/python tools/results.py

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
