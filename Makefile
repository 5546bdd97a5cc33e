# attnpaths: every task is one command. `make help` lists them.
#
# PYTHON=python3.12   the Python (3.11 or newer) that makes the environment
# JOBS=2              notebooks and tests run at once
# pip's own settings work as usual, for example PIP_EXTRA_INDEX_URL (see the README on PyTorch).

PYTHON ?= python3
JOBS ?= 2
PORT ?= 8000
VENV := .venv
BIN := $(VENV)/bin
PAGE := _build/html/index.html
SOURCES := $(shell find attnpaths -name '*.py' -o -name '*.js' -o -name '*.css')

# JOBS processes fill the cores: one thread of linear algebra in each.
book book-strict test test-all test-notebooks: export OMP_NUM_THREADS := $(or $(OMP_NUM_THREADS),1)

.DEFAULT_GOAL := help
.PHONY: help install book book-strict serve lab test test-all test-notebooks test-browser lint \
        format benchmark publish clean distclean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' Makefile | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

install: $(VENV)/.installed ## make .venv with everything the book and the tests need

$(VENV)/.installed: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("attnpaths needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "No virtual environment could be made. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV) (about 2 GB; a few minutes) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet -r requirements.txt -e .
	@touch $@

# The cache of executed notebooks knows the notebooks but not the package: empty it when the
# package is newer, so that a page never shows an older version's numbers.
_build/.package: $(SOURCES) requirements.txt
	@rm -rf _build/.jupyter_cache _build/.doctrees
	@mkdir -p _build && touch $@

book: install _build/.package ## run all notebooks and build the book
	@$(BIN)/python scripts/execute_book.py
	$(BIN)/jupyter-book build .
	@echo
	@echo "The book is built. Open  $(abspath $(PAGE))"
	@echo "or run  make serve  and open  http://localhost:$(PORT)/"

book-strict: install _build/.package ## the same; any warning or unknown cross-reference is an error
	@$(BIN)/python scripts/execute_book.py
	$(BIN)/jupyter-book build --all -W -n --keep-going .

serve: install ## show the built book at http://localhost:8000/
	@test -f $(PAGE) || { echo "No book yet: run  make book" >&2; exit 1; }
	$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

lab: install ## open the chapters in JupyterLab
	$(BIN)/jupyter lab --notebook-dir=book

test: install ## fast tests, and every notebook against its stored key numbers
	$(BIN)/pytest -n $(JOBS)
	@$(MAKE) --no-print-directory test-notebooks

test-all: install ## the same with the slow tests
	$(BIN)/pytest -n $(JOBS) -m "not browser"
	@$(MAKE) --no-print-directory test-notebooks

test-notebooks: install ## only the notebooks
	$(BIN)/pytest -n $(JOBS) --dist loadscope --nbval-lax --nbval-cell-timeout 180 book

test-browser: install ## the built book in Chromium (run make book first); screenshots in artifacts/
	$(BIN)/pytest -m browser tests

lint: install ## format, style, types and clean notebooks; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python scripts/clean_notebooks.py --check

format: install ## put format, imports and notebooks in order
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	$(BIN)/python scripts/clean_notebooks.py

benchmark: install ## measure the speed table
	@for table in benchmarks/[a-z]*.py; do echo "== $$table"; $(BIN)/python $$table || exit 1; done

publish: book-strict ## build strictly and push the pages to the gh-pages branch of origin
	$(BIN)/ghp-import --no-jekyll --push --force --message "Publish the book" _build/html

clean: ## remove what builds and tests made
	rm -rf _build artifacts build dist .pytest_cache .hypothesis .ruff_cache .mypy_cache
	find attnpaths tests benchmarks book scripts -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## remove the environment too
	rm -rf $(VENV) attnpaths.egg-info
