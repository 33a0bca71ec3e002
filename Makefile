# On a fresh machine with Python 3.11+ and make: `make demo` or `make test`, and nothing else before.

PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready
READY_ZOO := .venv/.ready-zoo
READY_DOCS := .venv/.ready-docs
READY_MUTANTS := .venv/.ready-mutants
READY_RELEASE := .venv/.ready-release
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# glibc gives large tensors back to the system as soon as they are freed, and asks for their pages again: a fifth of the
# time of tests with matrices of 3,000 rows. Here it keeps them.
KEPT_PAGES := MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296

.PHONY: demo test test-gpu test-matrix lint style docs zoo faults soak mutants bench bench-gpu wheel release clean

demo: $(READY)
	$(BIN)/ritz demo

# Bytecode is kept even where the environment forbids it: every worker and command would compile all files anew.
# Types are checked beside the tests, for that takes one core alone; what is wrong with them is said last.
test: style
	@mkdir -p out
	$(BIN)/mypy >out/mypy.txt 2>&1 & types=$$!; \
	$(ONE_THREAD) $(KEPT_PAGES) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal; tests=$$?; \
	wait $$types; types=$$?; cat out/mypy.txt; test $$tests$$types = 00

# On a machine with a GPU and its own PyTorch: the same results as on its CPU (RITZ_TEST_DEVICE=cpu rehearses).
test-gpu:
	PYTHONPATH=src:. $(PYTHON) -m tests_gpu --out out/test-gpu.json

# The suite with the lowest, the pinned and the newest PyTorch, one throw-away environment after the other.
test-matrix: $(READY)
	$(BIN)/python -m tests.matrix

# The site: every example, page and notebook runs anew. It is docs/_build/html/index.html.
docs: $(READY_DOCS)
	PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -b html -W --keep-going docs docs/_build/html

# What goes to PyPI, checked: a wheel and the sources.
wheel: $(READY_RELEASE)
	rm -rf dist build
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

# make release VERSION=0.2.0: the version and the changelog are changed, docs and wheel built, the commit tagged.
release: $(READY_RELEASE)
	$(BIN)/python -m release $(VERSION)

lint: style
	$(BIN)/mypy

style: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

# Networks of torchvision, timm, transformers and PEFT against an independent oracle; the table is docs/zoo.md.
zoo: $(READY_ZOO)
	$(ONE_THREAD) $(BIN)/python -m zoo

# Kills, full disks, hostile files, dead workers, threads, fuzzed calls: at most an hour. make faults SHARE=0.1 is a tenth.
SHARE ?= 1
faults: $(READY)
	$(ONE_THREAD) $(BIN)/python -m faults --share $(SHARE) --write

# Training, a sweep and ritz spectrum in a loop: nothing may grow, nothing may be left. make soak MINUTES=10
MINUTES ?= 60
soak: $(READY)
	$(ONE_THREAD) $(BIN)/python -m faults.soak --minutes $(MINUTES) --write

# One change at one place of the core: do the tests notice? The table is docs/mutants.md. Ten minutes on two cores; those
# that no known test kills take all tests of their lines, and a map of these first: half an hour.
mutants: $(READY_MUTANTS)
	$(ONE_THREAD) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.mutants --jobs 2 --page docs/mutants.md

# PyHessian pins nothing and pulls in the world: its code is all the benchmark needs.
bench: $(READY)
	$(BIN)/python -c "import pyhessian, hessian_eigenthings" 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --no-deps PyHessian==0.1 hessian-eigenthings==1.0.0a5
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.theory
	$(BIN)/python -m benchmarks.gram
	$(BIN)/python -m benchmarks.classes
	$(BIN)/python -m benchmarks.lab
	$(BIN)/python -m benchmarks.imports
	$(BIN)/python -m benchmarks.solvers
	$(BIN)/python -m benchmarks.coverage --jobs 2

# On a GPU machine that has torch but no network: the peers lie in .peers, a folder that is made where there is one.
bench-gpu:
	PYTHONPATH=src:.peers $(PYTHON) -m benchmarks --gpu
	PYTHONPATH=src $(PYTHON) -m benchmarks.gram --gpu
	PYTHONPATH=src $(PYTHON) -m benchmarks.classes --gpu resnet vgg
	PYTHONPATH=src $(PYTHON) -m benchmarks.lab --gpu
	PYTHONPATH=src:.peers $(PYTHON) -m benchmarks.memory
	PYTHONPATH=src:.peers $(PYTHON) -m benchmarks.mixed
	PYTHONPATH=src:.peers $(PYTHON) -m benchmarks.deepnets --gpu

.peers: $(READY)
	$(BIN)/python -m pip install --quiet --target .peers --no-deps -c constraints.txt \
		curvlinops-for-pytorch backpack-for-pytorch einconv einops linear_operator opt_einsum unfoldNd tqdm packaging

clean:
	rm -rf .venv out build dist docs/_build docs/auto_gallery docs/reference .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The stamp: the environment is made once, and again only when what it should hold has changed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit('ritz needs Python 3.11 or newer, this is ' + sys.version) if sys.version_info < (3, 11) else None"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(READY_DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

$(READY_RELEASE): $(READY_DOCS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	touch $@

$(READY_ZOO): $(READY) constraints-zoo.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -c constraints-zoo.txt -e '.[zoo]'
	touch $@

$(READY_MUTANTS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mutants]'
	touch $@
