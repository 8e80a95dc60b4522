# Every target makes its own environment first, from PyPI, and reuses it: nothing else needs to be typed.
# VENV=<directory> puts the environment elsewhere; PYTHON=<interpreter> chooses the Python that makes it; WORKERS=<number>
# is how many processes test: they wait for ranks, up to eight each, more than they compute.

VENV ?= .venv
WORKERS ?= 3
SHARED = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=30 --durations-min=5
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

MINUTES ?= 30
SEED ?= 0
FLOOR ?= 85
RANKS ?= 2 4
RECORDED ?= local_x2 local_x4 2x1gbit 4x1gbit 2x100mbit 4x100mbit
# From a name in RECORDED to the words of its command. Two ranks have more steps: theirs are short, and their schemes
# nearer to one another.
WHERE := s/^local_x/cluster=local world_size=/;s/^[24]x/cluster=emulated_&/;/=2$$\|_2x/s/$$/ steps=60/;/=4$$\|_4x/s/$$/ steps=36/
SIMULATED := breakdown compressors density bandwidth large_models selective collective_scaling \
  acpsgd_models acpsgd_fusion acpsgd_sweeps mergecomp_clusters mergecomp_groups micro_clusters s2_sparse \
  convergence_times

LARGE := resnet152_cifar100 bert_base_squad gpt2_wikitext103

.DEFAULT_GOAL := help
.PHONY: tests committed help install figures demo test test-all test-fast test-pages coverage soak smoke-large lint lock wheel release site reference simulations calibration validation conf component docs clean

.DEFAULT:
	@echo "make has no target $@; make help lists them" >&2; exit 2

tests: test

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make or update the environment in .venv (about 5 minutes, 6 GB)

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "ssfx needs Python 3.11 or newer and found none; install one or say make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

figures: $(INSTALLED) ## draw every figure, and results/figures/report.html with what the papers claim
	@$(BIN)/ssfx figures && $(BIN)/ssfx report

demo: $(INSTALLED) ## one short run of every scheme on this machine and its figures (about 3 minutes)
	@$(BIN)/ssfx run experiment=throughput cluster=local preset=smoke workload=digits_resnet

test: $(INSTALLED) ## the tests of every change (about a quarter of an hour on 2 cores)
	@$(BIN)/python -m pytest $(SHARED) -m "not nightly and not pages"

test-all: $(INSTALLED) ## every test: long products of cases whole, too (about an hour)
	@$(BIN)/python -m pytest $(SHARED)

test-fast: $(INSTALLED) ## the tests without real ranks and long cases (minutes)
	@$(BIN)/python -m pytest $(SHARED) -m "not slow and not torchrun and not nightly and not pages"

test-pages: $(INSTALLED) ## generated pages, pictures and verdicts, made again: whether `make docs` would change any
	@$(BIN)/python -m pytest $(SHARED) -m "pages and not nightly"

coverage: $(INSTALLED) ## lines that all tests without torchrun reach in their own process; fails below FLOOR percent
	@$(BIN)/python -m pytest $(SHARED) -m "not torchrun and not nightly" --cov=ssfx --cov=experiments \
	  --cov-report=term:skip-covered --cov-fail-under=$(FLOOR)

soak: $(INSTALLED) ## 30 minutes of random faults in a loop (MINUTES=5, SEED=1): right rows, and nothing piles up
	@$(BIN)/python benchmarks/soak.py --minutes $(MINUTES) --seed $(SEED)

smoke-large: $(INSTALLED) ## ResNet-152, BERT-base and GPT-2 small, 3 timed steps on 2 ranks, dense and ssfusion_oi (20 GB)
	@for workload in $(LARGE); do \
	  $(BIN)/ssfx run workload=$$workload dataset=synthetic "scheme=ddp,ssfusion_oi(profile_iters=2)" batch_size=1 \
	    world_size=2 device=cpu steps=6 warmup_steps=3 stall_timeout_s=1800 || exit 1; done

lint: $(INSTALLED) ## style, types, and a user for every option
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@! git grep -n 'fmt: *ski[p]' -- '*.py' # the formatter is on everywhere
	@$(BIN)/python benchmarks/options_used.py
	@$(BIN)/mypy

ROOMS = ssfx/ $(wildcard ssfx/*/ ssfx/lab/*/) experiments/ $(wildcard experiments/*/ experiments/common/*/) tests/ benchmarks/

.PHONY: lines
lines: ## lines of Python by room, and those of a commit (BASE=main) beside them
	@there=$$(mktemp -d) && trap 'rm -rf "$$there"' EXIT && \
	  { [ -z "$(BASE)" ] || git archive "$(BASE)" | tar -x -C "$$there"; } && \
	  count() { find "$$1" -name '*.py' -exec cat {} + 2>/dev/null | wc -l; } && \
	  for room in $(ROOMS); do \
	    now=$$(count "$$room") && [ "$$now" -gt 0 ] || continue; \
	    if [ -n "$(BASE)" ]; then printf '%7d %+7d  %s\n' "$$now" $$((now - $$(count "$$there/$$room"))) "$$room"; \
	    else printf '%7d  %s\n' "$$now" "$$room"; fi; done

lock: $(INSTALLED) ## requirements.lock for the requirements of today; what is locked already stays (--upgrade: rm it first)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile --quiet pyproject.toml --extra dev --python-version 3.11 \
	  --python-platform x86_64-manylinux_2_28 --no-annotate --output-file requirements.lock

wheel: $(INSTALLED) ## the package as one file in dist/
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

release: wheel ## the wheel of a release: its version is that of the tag and of CHANGELOG.md
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/ssfx-*.whl
	@cd /tmp && $(abspath $(BIN))/python -m ssfx advise model=gpt2 cluster=64gpu >/dev/null
	@version=$$($(BIN)/python -m ssfx --version | cut -d' ' -f2); grep -q "^## $$version$$" CHANGELOG.md || \
	  { echo "CHANGELOG.md has no '## $$version' without 'not released yet'" >&2; [ "$${GITHUB_REF_TYPE:-}" != tag ]; }
	@[ "$${GITHUB_REF_TYPE:-}" != tag ] || [ "v$$($(BIN)/python -m ssfx --version | cut -d' ' -f2)" = "$$GITHUB_REF_NAME" ]

PAGES = README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md CITATION.cff results/README.md \
  .github/ISSUE_TEMPLATE/gpu.md tests/kernels/kernel_budget.csv docs/*.md docs/site.css docs/img/*.png experiments/*/README.md

site: $(INSTALLED) ## the documentation as a site with search, in build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[site]'
	@rm -rf build/pages && mkdir -p build/pages && cp --parents $(PAGES) build/pages
	@$(BIN)/python -m experiments.common.pages.options_page > build/pages/docs/options.md
	@$(BIN)/mkdocs build --quiet
	@$(BIN)/ssfx report --out build/site/report.html
	@echo "$(BIN)/python -m http.server --directory build/site   # then open localhost:8000"

committed:
	@test -z "$$(git status --porcelain)" || { echo "commit first: rows of code that is in no commit are no reference" >&2; exit 1; }

reference: $(INSTALLED) committed ## run experiment=throughput cluster=local again and replace its reference rows
	@$(BIN)/ssfx run experiment=throughput cluster=local preset=short
	@$(BIN)/python -m ssfx.lab.cli.reference throughput_local experiment=throughput cluster=local preset=short
	@$(MAKE) --no-print-directory docs

simulations: $(INSTALLED) committed ## simulate the papers' clusters again and replace those reference rows (2 minutes)
	@$(BIN)/ssfx run experiment=throughput cluster=16gpu,32gpu,64gpu cluster.calibration=nominal,published
	@for name in $(SIMULATED); do $(BIN)/ssfx run experiment=$$name || exit 1; done
	@$(BIN)/ssfx run experiment=profiling_overhead cluster=64gpu
	@$(BIN)/python -m ssfx.lab.cli.reference profiling_overhead_64gpu experiment=profiling_overhead cluster=64gpu
	@for cluster in 16gpu 32gpu 64gpu; do $(BIN)/python -m ssfx.lab.cli.reference throughput_$$cluster \
	  experiment=throughput cluster=$$cluster cluster.calibration=nominal,published || exit 1; done
	@for name in $(SIMULATED); do $(BIN)/python -m ssfx.lab.cli.reference $${name}_clusters experiment=$$name || exit 1; done
	@$(MAKE) --no-print-directory docs

calibration: $(INSTALLED) ## measure this machine for cluster=local and emulated ones (as root, 40 quiet minutes; RANKS=2: of two ranks only)
	@for ranks in $(RANKS); do \
	  $(BIN)/ssfx profile compressors ranks=$$ranks && \
	  $(BIN)/ssfx profile network cluster=local world_size=$$ranks && \
	  $(BIN)/ssfx profile network cluster=emulated_$${ranks}x1gbit && \
	  $(BIN)/ssfx profile network cluster=emulated_$${ranks}x100mbit || exit 1; \
	  for model in resnet_tiny vgg_tiny lstm_tiny gpt2_tiny; do \
	    $(BIN)/ssfx profile model=$$model ranks=$$ranks || exit 1; done; done

validation: $(INSTALLED) committed ## run what the simulator is checked against, and ship it with the calibration (as root, a quiet hour)
	@for where in $(RECORDED); do $(BIN)/ssfx run experiment=validation $$(echo $$where | sed '$(WHERE)') || exit 1; done
	@for where in $(RECORDED); do \
	  $(BIN)/python -m ssfx.lab.cli.reference validation_$$where experiment=validation \
	    $$(echo $$where | sed '$(WHERE)') || exit 1; done
	@cp $$(ls results/profiles/*-x[24].json) ssfx/data/systems/
	@$(BIN)/python -m experiments.common.validation plans
	@$(MAKE) --no-print-directory docs

conf: $(INSTALLED) ## write the files of conf/ that describe registered components, and the tables of ssfx list
	@$(BIN)/python -m ssfx.config.write_conf
	@$(BIN)/python -m ssfx.cli.listing

component: conf ## every generated file that follows a new component: KIND=scheme NAME=x, its file being written
	@$(BIN)/python -m ssfx.config.keys > tests/config/golden_keys.txt
	@case "$(KIND)" in \
	  scheme) grep -qx '      - $(NAME)' conf/experiment/throughput.yaml || \
	    sed -i '0,/^      - spardl$$/s//&\n      - $(NAME)/' conf/experiment/throughput.yaml ;; \
	  compressor) $(BIN)/python benchmarks/count_operators.py $(NAME) --write ;; \
	  memory | collective | dataset | model | engine) ;; \
	  *) echo "KIND=scheme|compressor|memory|collective|dataset|model|engine NAME=its name" >&2; exit 1 ;; esac
	@git status --short

docs: $(INSTALLED) ## redraw docs/img and rewrite the generated tables and pages of the documentation
	@$(BIN)/python -m experiments.common.validation
	@$(BIN)/python -m experiments.common.pages.readme

clean: ## remove the environment, figures and caches; runs stay
	rm -rf $(VENV) results/figures build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
