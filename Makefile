# The tasks of this project. `make demo` and `make test` need nothing but python3 (3.11 or newer) with pip, go, git and make:
# the environment is made in .venv, and programs that are missing are built once into the user's cache folder.

PYTHON ?= python3
BIN := .venv/bin
# The lock it was made from is part of the stamp's name, so the environment is made anew exactly when the lock changes.
LOCK := $(shell $(PYTHON) -c "import hashlib; print(hashlib.sha256(open('requirements-dev.lock', 'rb').read()).hexdigest()[:12])")
STAMP := .venv/.made-from-$(LOCK)
# Many short processes start here; each would compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: prose metrics help demo up down test test-fast test-long soak lives campaign explore fuzz fuzz-front faults-clouds coverage testbed testbed-down check docs docs-reference \
  check-types check-rest fmt lock bench bench-front bench-page bench-traffic screenshots programs keda envoy image oracle venv clean mutants mutate compiled simulate

help:
	@echo "make demo          a whole fleet on this machine, gateways included, with a first model on two clusters that answers"
	@echo "make up, down      the same fleet without a model; stop it"
	@echo "make test          all checks, and all tests without the marks long, keda and soak; it ends with a table of its time"
	@echo "make test-long     the tests marked long: losses, upgrades of stacks, clusters at fake clouds, KEDA (built once, cached)"
	@echo "make test-fast     the tests that need no real parts, with few random cases"
	@echo "make soak          simulate, lives, campaign, explore, faults-clouds, fuzz, fuzz-front and mutants in turn: before a"
	@echo "                   release, and after a change to the scheduler, to a workflow or to a reader of input"
	@echo "make lives         the tests marked soak: lives on real parts, with faults, and costly seeds of the simulation"
	@echo "make campaign      many random cases from a new seed"
	@echo "make fuzz          broken manifests, kubeconfigs, selectors, messages and answers, for MINUTES=30"
	@echo "make fuzz-front    requests that its own OpenAPI documents let clients send to the front, for MINUTES=30"
	@echo "make explore       ten million steps of the protocol between the entities, with faults"
	@echo "make simulate      whole fleets in virtual time, with faults: SEEDS=1-1000, DAYS=0.5; repeat one with SEEDS=7 and its DAYS"
	@echo "make faults-clouds 500 random lives of clusters at each fake cloud: faults, dead workers, lost credentials"
	@echo "make testbed       start a testbed for tests that stays up; make testbed-down stops it"
	@echo "make keda          build KEDA, which make test-long does when it is missing"
	@echo "make envoy         build Envoy Gateway and an endpoint picker, as make keda does"
	@echo "make image         build the container image as root, which make test-long does when the product has changed"
	@echo "make mutants       break each kept line of code alone, and show that its test fails"
	@echo "make mutate        break random lines: PACKAGE=scheduler SAMPLE=50 SEED=1; it prints the changes that no near test notices"
	@echo "make check, fmt    linters, types, imports, dependencies, class names, dead code; apply fixes of the linter and the format"
	@echo "make docs          build the documentation site into build/site; a broken link or an unlisted page is an error"
	@echo "make docs-reference  write the generated parts of the documentation: settings, and output of commands"
	@echo "make prose         the index of unclear English per package, docs and texts for users; it fails above 3 per 1,000 words"
	@echo "make metrics       size and density of the code, beside packages that readers know; repeated names"
	@echo "make coverage      branch coverage of the tests that need no real parts"
	@echo "make bench-front   1,000 objects, 50 watchers and 100 writes a second at the front, for a minute"
	@echo "make bench-page    the web page with 1,000 clusters: first paint, and 60 changes a second"
	@echo "make screenshots   pictures of the web page in each state, of which the documentation shows some"
	@echo "make bench-traffic the latency of a request to an engine, through Envoy, and through Envoy and a picker"
	@echo "make lock          write the locks of Python packages again; it needs the package index"
	@echo "make bench         the speed of placement and of the protocol, beside the targets"
	@echo "make venv          the Python environment; make programs and make oracle build what tests start"
	@echo "make clean         delete the environment and what builds left in this folder"

demo: venv
	$(BIN)/modelplane up --apply examples/testbed/demo.yaml --apply examples/testbed/service.yaml --wait
	@echo
	-$(BIN)/modelplane chat demo "What answers here?"

up: venv
	$(BIN)/modelplane up

down: venv
	$(BIN)/modelplane down

# Which process runs which file: tests/environment/lanes.py. ORDER is the seed of a random order of the tests.
LANES := computing=3,shared=2
PYTEST_ALL = $(BIN)/pytest -n auto --max-worker-restart 0 --budgets $(if $(ORDER),-p random_order.plugin --random-order-seed=$(ORDER)) --maxfail 12
test: venv programs oracle
	$(BIN)/python -m tests.environment.times 'linters, compiled tests' $(MAKE) --no-print-directory --jobs 2 --output-sync=target check compiled
	$(PYTEST_ALL) --lanes $(LANES) -m "not long and not keda and not soak"

# The image is built before the tests, so that the progress of the build is visible.
test-long: venv programs keda image oracle
	$(PYTEST_ALL) --lanes computing=2,own=4 -m "(long or keda) and not soak"

# Hours of random cases, outside CI. It ends at the first finding.
soak: simulate lives campaign explore faults-clouds fuzz fuzz-front mutants

# Whole lives on real parts that the simulation shows as well, costly seeds, and requests through Envoy and endpoint pickers.
lives: venv programs envoy
	$(PYTEST_ALL) --lanes own=2 -m soak

# For the inner loop. Its summary counts the tests that it leaves out. It keeps the folders of
# failed tests only: by default, pytest deletes all folders of an earlier run at the end of a run.
test-fast: venv
	MODELPLANE_TEST_CASES=0.05 $(BIN)/pytest -q -n 2 --dist worksteal -o tmp_path_retention_policy=failed \
	  -m "not testbed and not oracle and not slow"

# A random test that needs the testbed has one schedule of faults per seed, so there the seed alone makes the difference.
campaign: SEED := $(or $(MODELPLANE_TEST_SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))
campaign: venv programs oracle
	@echo "seed $(SEED); to repeat it: make campaign MODELPLANE_TEST_SEED=$(SEED)"
	MODELPLANE_TEST_CASES=7 MODELPLANE_TEST_SEED=$(SEED) $(BIN)/pytest -n 2 --dist worksteal --timeout 3600 -m random || { \
	  echo "Add what was found to its test, so that every run tries it: a falsifying example as @example(...) above @given(...)," ; \
	  echo "a fleet's number to FOUND in tests/scheduler/laws/test_invariants.py, a world's to that in policies/test_policies.py beside it," ; \
	  echo "another seed's case as a test of its own." ; exit 1; }

# What it finds is written into tests/fuzz/corpus, so that the tests try it from then on; MODELPLANE_TEST_SEED repeats a run.
fuzz: MINUTES := 30
fuzz: venv
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

# It ends at the first seed with a finding, and says how to repeat it.
fuzz-front: MINUTES := 30
fuzz-front: venv
	$(BIN)/python -m tests.fuzz.front --minutes $(MINUTES)

# Without Temporal and Kubernetes, in one process; MODELPLANE_TEST_SEED is the first episode's seed.
explore: venv
	$(BIN)/python -m tests.workflows.explorer.explore --steps 10000000 --seed $(or $(MODELPLANE_TEST_SEED),1)

# The mutants of tests/mutants/kept.py, each with the test that it names.
mutants: venv
	$(BIN)/python -m tests.mutants kept

# PACKAGE is a package or a module. MAP, a coverage file with contexts, names the tests of each line; without it they follow from imports.
mutate: PACKAGE := scheduler
mutate: SAMPLE := 50
mutate: venv
	$(BIN)/python -m tests.mutants drawn --package $(PACKAGE) --sample $(SAMPLE) $(if $(SEED),--seed $(SEED)) $(if $(MAP),--map $(MAP))

# Each seed simulates a whole fleet with workers, clusters and clouds in one process. A finding prints the command that repeats it.
simulate: SEEDS := 1-1000
simulate: DAYS := 0.5
simulate: venv
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --days $(DAYS)

# LIVES of them at each; MODELPLANE_TEST_SEED for others than those of every run. It prints how each ended, and how to repeat one.
faults-clouds: LIVES := 500
faults-clouds: venv
	$(BIN)/python -m tests.activities.clouds.lives --cloud gke --lives $(LIVES)
	$(BIN)/python -m tests.activities.clouds.lives --cloud eks --lives $(LIVES)

# One file or one test then starts in seconds: MODELPLANE_TESTBED_HOME=.testbed .venv/bin/pytest tests/workflows/test_end_to_end.py
testbed: venv programs
	$(BIN)/python -m tests.environment.shared_testbed up

testbed-down: venv
	$(BIN)/python -m tests.environment.shared_testbed down

# mypy takes as long as all others together: with --jobs 2 they run beside it.
check: check-types check-rest

check-types: venv
	$(BIN)/mypy

check-rest: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m tools.prose
	$(BIN)/deptry .
	$(BIN)/python -m tools.names
	@echo "functions and classes that nothing but tests uses:"
	@! $(BIN)/vulture | grep -E "unused (function|method|class|property|import)" && echo "none"

prose: venv
	$(BIN)/python -m tools.prose $(if $(WORST),--worst $(WORST))

metrics: venv
	$(BIN)/python -m tools.metrics
	$(BIN)/python -m tools.names --modules

# Of the tests that need no testbed: workers are processes of their own, which it does not see.
coverage: venv
	MODELPLANE_TEST_CASES=0.05 $(BIN)/pytest -q -n 2 --dist worksteal -m "not testbed and not oracle and not slow" --cov --cov-report=term:skip-covered

# pytest rewrites the assert statements of test files and caches the result. Without this step, every process of a lane would do that
# for the same files. The step ignores files that fail to import, because the test run reports them.
compiled: venv
	@$(BIN)/pytest --collect-only -qq >/dev/null 2>&1 || true

fmt: venv
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# tests/docs/test_site.py builds it as well, so `make test` fails on a broken link. With --quiet, MkDocs would not count warnings.
docs: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "build/site/index.html"

# A test fails while one of these is stale.
docs-reference: venv
	$(BIN)/python -m tests.docs.generated

# A uv.lock would write the address of a package index into the repository; this form names none.
lock: venv
	$(BIN)/pip install --quiet uv
	printf 'uv\nsetuptools\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --python-version 3.11 -o requirements-tools.lock -
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --python-version 3.11 -o requirements.lock pyproject.toml
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --python-version 3.11 --extra dev -o requirements-dev.lock pyproject.toml
	echo huggingface_hub | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --python-version 3.11 -c requirements-dev.lock \
	  -o activities/render/cache/hydration/requirements.lock -
	echo boto3 | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --python-version 3.11 -c requirements-dev.lock \
	  -o activities/render/cache/hydration/boto3.lock -

bench: venv programs
	$(BIN)/python -m tests.bench

# A front, a worker, a server and the clients: on two processors it measures those, and prints the same writes without the front beside.
bench-front: venv programs
	$(BIN)/python -m tests.bench.front_load

# A browser, a front and 1,000 clusters in one place: first paint, changes per second, and connections that broke.
bench-page: venv
	$(BIN)/python -m tests.bench.page

# The pictures of the web page in docs/how-to/pictures, and those of every state and width in build/screenshots.
screenshots: venv
	$(BIN)/python -m tests.front.screenshots

# What Envoy and an endpoint picker add to the latency of a request.
bench-traffic: venv programs envoy
	$(BIN)/python -m tests.bench.traffic

# Built before the tests and not by them, so that the progress of a long build is seen.
programs: venv
	$(BIN)/python -m testbed install --browser

# Built once, then cached.
keda: venv
	$(BIN)/python -m testbed install --keda

# As above: Envoy Gateway, an endpoint picker, and the stand-in for the AI gateway.
envoy: venv
	$(BIN)/python -m testbed install --envoy

# Debian stands in for the base images, so no registry is needed; without root it says so and makes nothing.
image: venv
	$(BIN)/python -m tests.environment.product_image

oracle: venv
	$(BIN)/python -c "from tests.oracle.client import build; print('oracle:', build())"

venv: $(STAMP)

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit('python 3.11 or newer is needed, this is ' + sys.version.split()[0] + '; set PYTHON=' if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-tools.lock && \
	  $(BIN)/uv pip install --quiet --python .venv --require-hashes -r requirements-dev.lock || \
	  { echo "uv cannot be used here: pip takes over, which is slower"; \
	    $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock; }
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@rm -f .venv/.made-from-*
	@touch $(STAMP)

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
