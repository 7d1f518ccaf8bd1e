# Every way to set up, check and run Ganger from a checkout. `make` alone lists them.

PYTHON ?= python3
UV ?= uv
VENV := .venv
BIN := $(VENV)/bin

# Stamps: an installation is repeated only when what it was made from has changed.
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
INSTALLED_BENCH := $(VENV)/.installed-bench

# Queues that `make bench-peers` measures beside Ganger, each in an environment of its own.
PEERS := rq huey celery dramatiq procrastinate
INSTALLED_PEERS := $(PEERS:%=.peers/%/.installed)
# What `make bench` runs beside commands on nodes.
INSTALLED_ANSIBLE := .peers/ansible/.installed

# Debian packages that the tests and the benchmarks use beside Python.
SYSTEM_PACKAGES := strace chromium
BENCH_SYSTEM_PACKAGES := redis-server openssh-server openssh-client
PEERS_SYSTEM_PACKAGES := redis-server task-spooler \
	$(if $(wildcard /usr/lib/postgresql/*/bin/initdb),,postgresql)

# Debian packages that are unpacked into .ganeti/ and not installed: Ganeti's own tools and clients,
# with what they import. Nothing of them is configured or started.
UNPACKED_PACKAGES := ganeti-3.0 python3-ganeti-rapi python3-bitarray python3-simplejson \
	python3-openssl python3-cryptography python3-cffi-backend python3-pycurl python3-pyparsing \
	ganeti-htools-3.0 libpcre3

# Files and folders at the root, beside what .gitignore names. Tests and tools leave nothing there.
ROOT_NAMES := .ci .gitignore .typing CHANGELOG.md CONTRIBUTING.md LICENSE Makefile README.md \
	__init__.py actors bench cli docs py.typed pyproject.toml rapi requirements storage tests transport

# Wheels only: a source package would bring a build environment that nobody has pinned.
# Errors are still shown at -qq; warnings about a machine's own pip settings are not.
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
PINNED := --require-hashes --no-deps --only-binary :all:
PIP_INSTALL_PINNED := $(PIP_INSTALL) $(PINNED)

# Installs those of the Debian packages $(1) that are missing, or says why it cannot.
define install_system_packages
@missing=; \
for package in $(1); do \
	dpkg-query -W -f '$${db:Status-Status}' "$$package" 2>/dev/null | grep -qx installed \
		|| missing="$$missing $$package"; \
done; \
[ -n "$$missing" ] || exit 0; \
if ! command -v apt-get >/dev/null; then \
	echo "Not installed:$$missing (no apt-get here); what needs them is skipped or fails."; \
	exit 0; \
elif [ "$$(id -u)" = 0 ]; then as_root=; \
elif sudo -n true 2>/dev/null; then as_root='sudo -n'; \
else \
	echo "Not installed:$$missing (needs root); what needs them is skipped or fails."; \
	exit 0; \
fi; \
echo "Installing system packages:$$missing"; \
$$as_root apt-get -qq update \
	&& $$as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get -qq install -y --no-install-recommends $$missing >/dev/null
endef

# Unpacks Debian packages below .ganeti/, or says why it cannot.
define unpack_packages
@[ "$$(cat .ganeti/.packages 2>/dev/null)" != "$(UNPACKED_PACKAGES)" ] || exit 0; \
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then \
	echo "Not unpacked: $(UNPACKED_PACKAGES) (no apt-get here); what needs them is skipped."; \
	exit 0; \
fi; \
folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && chmod 755 "$$folder"; \
download() { (cd "$$folder" && apt-get -qq download $(UNPACKED_PACKAGES) 2>"$$folder/problem"); }; \
if ! download; then \
	if [ "$$(id -u)" = 0 ]; then apt-get -qq update; else sudo -n apt-get -qq update; fi; \
	download; \
fi || { \
	echo "Not unpacked: $(UNPACKED_PACKAGES) (apt-get: $$(tail -1 "$$folder/problem"));" \
		"what needs them is skipped."; \
	exit 0; \
}; \
echo "Unpacking for tests: $(UNPACKED_PACKAGES)"; \
for package in "$$folder"/*.deb; do \
	dpkg-deb -x "$$package" "$$folder/unpacked" || exit 0; \
done; \
rm -rf .ganeti && cp -r "$$folder/unpacked" .ganeti \
	&& echo "$(UNPACKED_PACKAGES)" >.ganeti/.packages
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install check check-root check-format check-lint check-imports check-types check-client \
	test quick core coverage torture demo demo-hosts bench bench-peers wheel lock clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) \
		| while IFS='|' read -r target text; do printf '  %-16s %s\n' "$$target" "$$text"; done

install: $(INSTALLED) ## make .venv with Ganger in it: .venv/bin/ganger
	@echo "Ready: $(BIN)/ganger"

$(BIN)/pip:
	@command -v $(PYTHON) >/dev/null \
		|| { echo "Ganger needs Python 3.11 or newer, but there is no $(PYTHON)." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Ganger needs Python 3.11 or newer, but $(PYTHON) is" \
			"$$($(PYTHON) -V 2>&1); name another one: make install PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) has no venv module; install it: apt install python3-venv" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV)

$(INSTALLED): requirements/run.txt pyproject.toml | $(BIN)/pip
	@echo "Installing Ganger and what it needs to run into $(VENV)"
	@$(PIP_INSTALL_PINNED) -r requirements/run.txt
	@$(PIP_INSTALL) --no-build-isolation --no-deps -e .
	@touch $@

$(INSTALLED_DEV): requirements/dev.txt $(INSTALLED)
	@echo "Installing what checks, tests and benchmarks need into $(VENV)"
	@$(PIP_INSTALL_PINNED) -r requirements/dev.txt
	@touch $@

$(INSTALLED_BENCH): requirements/bench.txt $(INSTALLED_DEV)
	@echo "Installing what plots need into $(VENV)"
	@$(PIP_INSTALL_PINNED) -r requirements/bench.txt
	@touch $@

# A peer that cannot be installed is no error: the row of the peer repeats the last line of `problem`.
.peers/%/.installed: requirements/peers/%.txt | $(BIN)/pip
	@echo "Installing $* into .peers/$*"
	@mkdir -p .peers/$*
	@if $(PYTHON) -m venv .peers/$* 2>.peers/$*/problem && .peers/$*/bin/python -m pip install -qq \
		--disable-pip-version-check $(PINNED) -r $< 2>.peers/$*/problem; \
	then rm .peers/$*/problem; touch $@; else rm -f $@; echo "Not installed: $* ($$(tail -1 .peers/$*/problem))" >&2; fi

check: check-root check-format check-lint check-imports check-types check-client ## run every check that needs no running code

check-root: ## check that the root of the checkout holds what ROOT_NAMES says, and no more
	@echo "== names at the root"
	@strange=$$(git ls-files --cached --others --exclude-standard | sed 's|/.*||' | sort -u \
		| grep -vxF "$$(printf '%s\n' $(ROOT_NAMES))"); \
	[ -z "$$strange" ] || { echo "Not named in the Makefile's ROOT_NAMES:" $$strange >&2; exit 1; }

check-format: $(INSTALLED_DEV) ## check that the code is formatted (repair: .venv/bin/ruff format)
	@echo "== ruff format"
	@$(BIN)/ruff format --check .

check-lint: $(INSTALLED_DEV) ## check the code's style (repair: .venv/bin/ruff check --fix)
	@echo "== ruff check"
	@$(BIN)/ruff check .

# The import linter wants one package with everything below it, which only .typing shows.
check-imports: $(INSTALLED_DEV) ## check who may import whom
	@echo "== import-linter"
	@PYTHONPATH=.typing $(BIN)/lint-imports --no-logo

check-types: $(INSTALLED_DEV) ## check the types
	@echo "== mypy"
	@$(BIN)/mypy

check-client: $(INSTALLED_DEV) ## check that client.py and its neighbours are made (repair: .venv/bin/python docs/make_client.py)
	@echo "== client made from async_client"
	@$(BIN)/python docs/make_client.py --check

# The tests wait much, so there is work for more processes than processors. They start hundreds of
# commands and daemons, each of which would compile the package anew without its cache.
unexport PYTHONDONTWRITEBYTECODE
TEST_PROCESSES ?= 6
# Thousands of tests flush what they write. They do it in memory, where two GiB of it are free; the
# campaigns of `make torture` do it on the disk.
MEMORY := /dev/shm
TEST_FOLDER ?= $(shell test -w $(MEMORY) \
	&& test "$$(df --output=avail $(MEMORY) | tail -1)" -gt 2097152 && echo $(MEMORY))
PYTEST = $(if $(TEST_FOLDER),TMPDIR=$(TEST_FOLDER)) $(BIN)/pytest -rs --processes $(TEST_PROCESSES)

test: $(INSTALLED_DEV) ## run the tests; what was skipped is named at the end, with its reason
	$(call install_system_packages,$(SYSTEM_PACKAGES))
	$(unpack_packages)
	@$(PYTEST)

# What most changes need: each unit, the models with few examples, the stories, README's first steps.
QUICK_TESTS := $(addprefix tests/,actors cli properties rapi storage transcripts transport \
	system/test_readme.py test_checkout.py test_pages.py test_quick.py test_states_page.py)

# Small tests hardly wait, and each process collects all of them: for 5 seconds.
quick: TEST_PROCESSES = 3
quick: $(INSTALLED_DEV) ## run the tests that most changes need, in less than a minute
	@$(PYTEST) --quick $(QUICK_TESTS)

# Every Python that has tests/alone on its path finds no folder `ganeti` or `lab`.
core: $(INSTALLED_DEV) ## run the tests of the core with the folders ganeti and lab hidden
	@PYTHONPATH=$(CURDIR)/tests/alone $(PYTEST) --quick $(addprefix tests/,actors cli rapi storage transport)

coverage: $(INSTALLED_DEV) ## run the tests and list the lines that none of them reached
	$(call install_system_packages,$(SYSTEM_PACKAGES))
	$(unpack_packages)
	@$(PYTEST) --cov --cov-report=term-missing:skip-covered

demo: $(INSTALLED) ## start a daemon, run a few jobs, show what happens
	@$(BIN)/python -m docs.examples.demo

demo-hosts: $(INSTALLED) ## start a master and five hosts, break some of them, show what is true then
	@$(BIN)/python -m docs.examples.demo_hosts

torture: $(INSTALLED_DEV) ## kill, cut the power, fill the disk ...: every campaign in full (hours)
	$(call install_system_packages,$(SYSTEM_PACKAGES))
	@$(BIN)/python -m tests.torture --page docs/reliability.md

bench: $(INSTALLED_DEV) $(INSTALLED_ANSIBLE) ## measure Ganger beside other job queues
	$(call install_system_packages,$(BENCH_SYSTEM_PACKAGES))
	@$(BIN)/python -m bench

# Options for a small run: make bench-peers PEERS_OPTIONS="--rounds 1 --jobs 100 --listed 1000"
PEERS_OPTIONS ?= --page docs/performance.md --plot docs/plots/peers.svg
bench-peers: $(INSTALLED_BENCH) $(INSTALLED_PEERS) ## measure Ganger, RQ, Huey, Celery ... in one run (10 minutes)
	-$(call install_system_packages,$(PEERS_SYSTEM_PACKAGES))
	@$(BIN)/python -m bench.peers $(PEERS_OPTIONS)

# A build folder left from earlier would put modules into the wheel that are no more.
wheel: $(INSTALLED_DEV) ## build dist/ganger-<version>-py3-none-any.whl
	@rm -rf build
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	@ls dist/*.whl

# Nothing upgrades by itself; this does, and the difference is reviewed like any other change.
lock: ## resolve the dependencies anew into requirements/ (needs uv)
	@command -v $(UV) >/dev/null || { echo "There is no uv; install it: pip install uv" >&2; exit 1; }
	@echo "Resolving requirements/"
	@$(LOCK) --output-file requirements/run.txt pyproject.toml requirements/build.in
	@$(LOCK) --output-file requirements/dev.txt --extra dev --extra bench \
		--constraint requirements/run.txt pyproject.toml requirements/build.in
	@$(LOCK) --output-file requirements/bench.txt \
		--constraint requirements/dev.txt requirements/bench.in
	@for peer in $(PEERS) ansible; do \
		$(LOCK) --output-file requirements/peers/$$peer.txt requirements/peers/$$peer.in || exit 1; \
	done

# --universal: one file for every supported Python.
LOCK = $(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --no-build \
	--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock"

clean: ## remove everything that make and the tests have made
	rm -rf $(VENV) .ganeti .peers build dist *.egg-info .coverage .coverage.* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
