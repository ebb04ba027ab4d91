# Every target does its own set-up in .venv, once: `make dev` installs what Horae runs on, the others add their tools.

# The distribution's Python first: it was built with profiles, and runs a fifth faster than most that are built on the spot.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.ready-run
READY := $(VENV)/.ready
UNFINISHED := $(VENV)/.unfinished
EVERYTHING := .[all,dev]
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.PHONY: help dev test engines acceptance soak bench check format clean

help: ## Show what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

dev: $(RUNS) ## Start Horae on SQLite at http://127.0.0.1:8765, with demo jobs
	@exec $(BIN)/horae dev

test: $(READY) ## Run the tests (a few minutes)
	$(BIN)/pytest -m "not acceptance" -n 3 --dist worksteal -q $(ARGS)

engines: $(READY) ## Put real servers of DynamoDB, SQS, S3 and Redis into the user's cache, for the tests (once; about two minutes)
	@$(BIN)/python -m tests.engines

acceptance: $(READY) ## Prove the claims at full size, one after another (up to 25 minutes)
	$(BIN)/pytest -m acceptance -v --durations=0 $(ARGS)

soak: $(READY) ## Break real processes and simulated ones for twelve minutes, and judge every job (ARGS="--help" for more)
	@$(BIN)/python -m tests.soak $(ARGS)

bench: $(READY) ## Measure Horae beside its peers (an hour; ARGS="--quick" for a few minutes, "--help" for more)
	@$(BIN)/python -m benchmarks.table $(ARGS)

check: $(READY) ## Format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Put the format right and mend what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Forget the virtual environment and caches; the data in .horae stays
	rm -rf $(VENV) .bench/peers .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# What Horae runs on.
$(RUNS): pyproject.toml constraints.txt
	$(call install,.,Horae)
	@touch $@

# That, and the tools of developers.
$(READY): pyproject.toml constraints.txt
	$(call install,$(EVERYTHING),Horae and the tools for its tests)
	@touch $(RUNS) $@

# $(call install,REQUIREMENT,WHAT). An installation that was interrupted starts over with a new .venv, because pip takes a
# half-written package for installed. A pipe hides the exit code of pip, so only its success removes the mark.
define install
	@test -n "$(PYTHON)" || { echo "Horae needs Python 3.11 or newer with venv; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@if test -e $(UNFINISHED) || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		echo "Creating a virtual environment in $(VENV)"; \
		rm -rf $(VENV) && mkdir $(VENV) && touch $(UNFINISHED) && $(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "cannot make a virtual environment; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }; \
	fi
	@touch $(UNFINISHED)
	@echo "Installing $(2)"
	@{ $(PIP) install -e '$(1)' -c constraints.txt && rm $(UNFINISHED); } | { $(SHOW_PROGRESS); }
	@test ! -e $(UNFINISHED)
endef

# On a terminal, one line that changes with the package at hand; errors of pip go to stderr and are shown as they are.
SHOW_PROGRESS = show() { test ! -t 1 || printf '\r\033[K%.79s' "$$1"; }; \
	while read -r verb what rest; do \
		case "$$verb $$what" in \
			"Collecting "*) show "  $${what%%[<>=~!]*}" ;; \
			"Installing collected") show "  unpacking" ;; \
		esac; \
	done; show ""
