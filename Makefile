# Two commands: `make demo` shows the whole path, `make test` runs every test.
# `make help` lists the rest.

PYTHON ?= python3
BIN := .venv/bin
CHAPTERS := $(wildcard chapters/*.ipynb)
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install demo test notebooks book check-exercises bench lint clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

install: .venv/installed ## .venv with everything, at the versions of constraints.txt

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and \
	    f"Python 3.10 or newer is needed, $(PYTHON) is {sys.version.split()[0]}; try: make PYTHON=python3.12 ...")'
	@echo "Installing into .venv (a few minutes the first time, torch is large) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --progress-bar on --disable-pip-version-check -c constraints.txt -e '.[all]'
	@touch $@

demo: book ## build the book, release an assignment, grade a class of eight, show the results
	@$(BIN)/python tools/demo.py

test: .venv/installed ## the whole test suite: library, notebooks, exercises, book
	$(BIN)/python -m pytest -q -n 2 --dist loadscope $(PYTEST_ARGS)

notebooks: .venv/installed ## run the chapters again and store their outputs
	$(BIN)/python tools/notebooks.py run $(CHAPTERS)
	$(BIN)/python tools/notebooks.py gate $(CHAPTERS)

book: _build/html/index.html ## the book, into _build/html

# the address that the book was built with: another one means another build
_build/address: FORCE
	@mkdir -p _build; echo "$(BOOK_REPOSITORY_URL) $(BOOK_REPOSITORY_BRANCH)" | cmp -s - $@ || \
	    echo "$(BOOK_REPOSITORY_URL) $(BOOK_REPOSITORY_BRANCH)" > $@
FORCE:

_build/html/index.html: .venv/installed _build/address _config.yml _toc.yml index.md references.bib \
    $(wildcard chapters/* _static/* _ext/* packlib/*.py packlib/*/*.py) tools/book.py
	$(BIN)/python tools/book.py
	@touch $@

check-exercises: .venv/installed ## every known right answer passes, every wrong one loses its part
	$(BIN)/python exercises/check.py

bench: .venv/installed ## packlib against torch, side by side; writes benchmarks/results/
	$(BIN)/python benchmarks/moves.py
	$(BIN)/python benchmarks/layers.py

lint: .venv/installed ## ruff on all, mypy on packlib
	$(BIN)/ruff check .
	$(BIN)/mypy

clean: ## remove what was built; .venv stays
	rm -rf _build build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
