# Every verb of this project. On a fresh machine `make demo` and `make test` need nothing before them but
# Python >= 3.11, Node >= 22 and make; everything after `make setup` works offline.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GENERATORS := .make/client_generators
# What `make setup` installs: `deploy`, `demo` (includes deploy), `test` (includes demo) or `all`. Each verb that needs
# less than `all` sets up its own group. A group that is installed has a file in .make.
GROUP ?= all
GROUPS := deploy demo test all
READY := .make/ready
READY_all := $(READY)
$(foreach group,deploy demo test,$(eval READY_$(group) := $(READY)-$(group)))
SEEDS ?= 0..10000
TIER ?= default
export PATH := $(CURDIR)/$(BIN):$(PATH)
# The CDK's libraries print eleven lines about Node 20 in each process. `node-release` says it once, in one line.
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20
export NODE_NO_WARNINGS := 1
# Compiled files are kept: else every worker and every child process of a test compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE
# A make that this Makefile starts checks the release of Node no second time.
CHECK_NODE := $(if $(GPU_RECOVERY_NODE_CHECKED),,node-release)
export GPU_RECOVERY_NODE_CHECKED := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-full test-ray test-console console screenshots check simulate synth wheels try-wheels quick-start digests release-check publish mutants bench deploy docs site clean node-release

help: ## Say what each verb does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(CHECK_NODE) $(READY_$(GROUP)) ## Install everything into .venv and node_modules (GROUP=deploy, demo or test: less)
	@$(if $(filter $(GROUP),$(GROUPS)),:,echo "GROUP is one of $(GROUPS), not $(GROUP)" >&2; exit 2)

# Node.js Release Working Group, schedule.json: release 20 had its end of life on 30 April 2026. What it runs still works.
node-release:
	@major=$$(node --version | sed 's/^v\([0-9]*\).*/\1/'); \
	if [ "$${major:-0}" -lt 20 ]; then echo "Node 22 or newer is needed"; exit 1; fi; \
	if [ "$$major" -lt 22 ]; then echo "Warning: Node $$major has reached its end of life. Install Node 22 or newer." >&2; fi

# -- the groups of `make setup`, and their parts

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NPM := npm ci --no-audit --no-fund --loglevel=error

.make/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 1; }
	@echo "Making a virtual environment in $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(@D) && touch $@

.make/cdk: package.json package-lock.json
	@echo "Installing the CDK command line"
	@$(NPM)
	@mkdir -p $(@D) && touch $@

.make/console: console/package-lock.json
	@echo "Installing what builds the web console"
	@cd console && $(NPM)
	@mkdir -p $(@D) && touch $@

.make/lambda_layer: infra/layer/requirements.txt infra/layer/build.py | .make/venv
	@echo "Building the Lambda layer of the functions"
	@$(BIN)/python -m infra.layer.build
	@touch $@

.make/generators: tests/client_generators/requirements.txt | .make/venv
	@echo "Installing the generators of clients, which the tests use, into an environment of their own"
	@test -x $(GENERATORS)/bin/python || $(PYTHON) -m venv $(GENERATORS)
	@$(GENERATORS)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/client_generators/requirements.txt
	@touch $@

$(READY)-deploy: requirements-deploy.txt pyproject.toml .make/cdk .make/lambda_layer | .make/venv
	@echo "Installing the Python packages of a deployment"
	@$(PIP) -r requirements-deploy.txt
	@$(PIP) --no-deps -e .
	@$(BIN)/python -c 'import sysconfig, pathlib; pathlib.Path(sysconfig.get_path("purelib"), "gpu_recovery_repository.pth").write_text("$(CURDIR)\n$(CURDIR)/lambdas\n")'
	@touch $@

$(READY)-demo: $(READY)-deploy requirements-demo.txt agent/pyproject.toml agent/run/pyproject.toml
	@echo "Installing the Python packages of the sandbox"
	@$(PIP) -r requirements-demo.txt
	@$(PIP) --no-deps -e ./agent -e ./agent/run
	@touch $@

$(READY)-test: $(READY)-demo requirements-test.txt .make/console .make/generators
	@echo "Installing the Python packages of the tests (a minute or two, the first time)"
	@$(PIP) -r requirements-test.txt
	@touch $@

$(READY): $(READY)-test requirements.txt requirements-bench.txt
	@echo "Installing the Python packages of the benchmarks"
	@$(PIP) -r requirements.txt
	@touch $@

# -- the verbs

demo: $(CHECK_NODE) $(READY)-demo ## Watch a GPU fault heal itself, on this machine (KEEP=1 leaves it open; TRAINER=torch: a gloo run)
	@$(BIN)/python -m sandbox.demo

# The tests with Ray mostly wait, so they run beside the others. Their output comes at the end.
test: $(CHECK_NODE) $(READY)-test ## Every test but the longest, offline
	@$(BIN)/python -m tests.compiled
	@$(MAKE) --no-print-directory test-ray >.make/ray.log 2>&1 & ray=$$!; \
	$(BIN)/python -m pytest -n 4 --tier $(TIER) --ignore=tests/ray_runner $(BUDGET) $(COVERAGE); main=$$?; \
	wait $$ray; ray=$$?; cat .make/ray.log; \
	echo "tests: $$(test $$main = 0 && echo passed || echo FAILED); tests with Ray: $$(test $$ray = 0 && echo passed || echo FAILED)"; \
	test $$main = 0 -a $$ray = 0

test-fast: $(CHECK_NODE) $(READY)-test ## The tests that start no server and take no time
	@$(BIN)/python -m tests.compiled
	@$(BIN)/python -m pytest -n 2 --tier fast --ignore=tests/ray_runner

test-full: setup site ## Every test, with every lost call, many seeds and examples, and branch coverage; before a release
	@rm -f .coverage .coverage.ray; status=0; \
	$(MAKE) --no-print-directory test TIER=full COVERAGE="--cov --cov-branch --cov-append --cov-report=" || status=$$?; \
	$(BIN)/coverage combine --quiet --append .coverage.ray; \
	$(BIN)/python -m benchmarks.branch_coverage && exit $$status

test-ray: $(CHECK_NODE) $(READY)-test ## The tests that need a Ray head, which they start on loopback
	@COVERAGE_FILE=.coverage.ray $(BIN)/python -m pytest -m ray --tier $(TIER) $(COVERAGE) tests/ray_runner

test-console: $(CHECK_NODE) $(READY)-test ## The tests of the web console in Chromium (Debian: apt install chromium fonts-noto-cjk)
	@GPU_RECOVERY_NEEDS_BROWSER=1 $(BIN)/python -m pytest --tier $(TIER) tests/console

console: $(CHECK_NODE) $(READY)-test ## Build the web console into console/served/static, and its types from docs/openapi.json
	@cd console && npm run --silent types && npm run --silent check && npm run --silent build

screenshots: $(CHECK_NODE) $(READY)-test ## Screenshots and a recording of the web console, from a sandbox, into docs/screenshots
	@$(BIN)/python docs/generate_screenshots.py

check: $(CHECK_NODE) $(READY)-test ## Format, lint and types, then every test
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy
	@$(MAKE) --no-print-directory test BUDGET="--cpu-budget 2"

simulate: $(CHECK_NODE) $(READY)-demo ## Ten thousand seeds of faults against the product's own code (SEEDS=A..B for others)
	@$(BIN)/python -m simulator run --seeds $(SEEDS)

synth: $(CHECK_NODE) $(READY)-deploy ## The CloudFormation templates, into cdk.out (no credentials needed; NAME=prod: with settings/prod.toml)
	@npx --no-install cdk synth --quiet --no-notices $(if $(NAME),-c gpu-recovery:settings=$(NAME)) $(CONTEXT)
	@$(if $(NAME),:,$(BIN)/python -m release.quick_start --into cdk.out/quick-start)

wheels: setup ## The three wheels, into dist (REPOSITORY=https://... adds the address of the repository)
	@$(BIN)/python -m release.wheels --repository "$(REPOSITORY)"

# Without `setup`: the Python that is tried need not be the one that builds, and may be older.
try-wheels: ## Install the wheels of dist into a fresh environment, use them and remove each alone (PYTHON=python3.9)
	@$(PYTHON) release/try_wheels.py dist

quick-start: setup ## The template of the quick start and its files, into dist (docs/quick-start.md)
	@$(BIN)/python -m release.quick_start --into dist/quick-start --archive

digests: setup ## Write the current digest of each base image into its Dockerfile (asks the registries)
	@$(BIN)/python -m release.base_images refresh

release-check: setup ## What a release of TAG=v<version> lacks: version, changelog, digests of base images
	@$(BIN)/python -m release.readiness "$(TAG)"

publish: ## The page of a release on GitHub, with the files of dist (TAG=v<version>; needs gh and its token)
	@gh release create "$(TAG)" --verify-tag --title "gpu-recovery $(TAG)" --notes "CHANGELOG.md says what is new." dist/*.whl dist/*.zip

mutants: setup ## Small defects in the product, one at a time: how many do the tests find? Half an hour (SAMPLE="--core 20")
	@$(BIN)/python -m benchmarks.mutation $(SAMPLE)

bench: setup ## Measure, into benchmarks/results.json
	@$(BIN)/python -m benchmarks

deploy: $(CHECK_NODE) $(READY)-deploy ## Into the AWS account of your credentials (NAME=prod: with settings/prod.toml; else cdk.json and CONTEXT="-c ...")
	@$(BIN)/python -m infra.deploy --name "$(NAME)" $(CONTEXT)

docs: setup ## Write again what is generated from tables and counted calls
	@$(BIN)/python docs/generate_states.py
	@$(BIN)/python docs/generate_permissions.py
	@$(BIN)/python docs/generate_openapi.py
	@$(BIN)/python docs/generate_cli.py
	@$(BIN)/python docs/generate_api.py
	@$(BIN)/python docs/generate_settings.py
	@$(BIN)/python -m tests.aws.cost_page

site: $(CHECK_NODE) .make/site/ready ## All documents as a web site in English and Chinese, into build/site
	@.make/site/bin/python docs/site/build.py

.make/site/ready: docs/site/requirements.txt
	@test -x .make/site/bin/python || $(PYTHON) -m venv .make/site
	@.make/site/bin/python -m pip install --quiet --disable-pip-version-check -r docs/site/requirements.txt
	@touch $@

clean: ## Remove everything that was installed or generated
	@if [ -x $(BIN)/gpu-recovery ]; then $(BIN)/gpu-recovery sandbox down; fi
	@rm -rf $(VENV) node_modules cdk.out .make .sandbox build dist *.egg-info .pytest_cache .coverage .hypothesis .ruff_cache .mypy_cache
