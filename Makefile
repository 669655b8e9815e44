# `make book` and `make test` need Python 3.11+ and make. They install the rest into .venv,
# the tested versions, and install again only when what is needed has changed.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt
LISTS := pyproject.toml requirements.txt constraints.txt
NBVAL := --nbval-lax --nbval-current-env --nbval-cell-timeout 300
# So many files of tests, or chapters, at once, each on one thread.
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(RUN) -m pytest -n $(WORKERS) --dist loadfile

.PHONY: book store downloads links test test-all check lab clean

# Warnings are errors here. JUPYTER_PLATFORM_DIRS keeps Jupyter from announcing that it will
# look for its settings elsewhere one day.
book: $(VENV)/book.stamp
	JUPYTER_PLATFORM_DIRS=1 $(VENV)/bin/jupyter-book build book/ -W --keep-going

# What was computed goes into the notebooks and the README, to be looked at and committed.
store: book
	$(RUN) book/store.py

# The book as one PDF, as an ePub, and the slides; `make book` then offers them.
downloads: $(VENV)/book.stamp
	$(RUN) book/downloads.py

# Do the links to other places still lead somewhere? Needs the internet.
links: $(VENV)/book.stamp
	RCLCPB_EXECUTE=off $(VENV)/bin/jupyter-book build book/ --builder linkcheck

test: check
	$(PYTEST) tests --cov -m "not long"
	$(PYTEST) $(NBVAL) book/*.ipynb

# And what takes longer: hundreds of kills, clusters with several workers, many draws. One at a
# time, because they start processes of their own.
test-all: test
	$(RUN) -m pytest tests -m long

check: $(VENV)/test.stamp
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy

lab: $(VENV)/book.stamp
	$(RUN) -m jupyterlab --notebook-dir=book

# Leaves data/ and runs/: they may have taken hours.
clean:
	rm -rf $(VENV) book/_build book/generated build *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage

$(VENV)/book.stamp: $(LISTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "error: $(PYTHON) is missing or older than Python 3.11: install a newer one" \
	    "and name it, as in: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing into $(VENV): some minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -r requirements.txt
	@touch $@

$(VENV)/test.stamp: $(VENV)/book.stamp $(LISTS)
	$(INSTALL) --editable '.[dev]'
	@touch $@
