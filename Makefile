# Everything runs in .venv, which the targets make and keep up to date by themselves.

PYTHON ?= python3
PORT ?= 8000
# Each process of the tests has a PostgreSQL of its own.
PYTEST_ARGS ?= -n auto
BIN := .venv/bin
export PORT

.PHONY: help demo serve test test-quick coverage package chaos bench bench-admin comparison docs diagrams messages lint format clean examples.db.install examples.db.uninstall
.DEFAULT_GOAL := help

help: ## Show this list
	@sed -n 's/^\([a-z.-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 32

demo: .venv/.has-demo ## See the example shop run: ten orders, their jobs, the archive (a minute)
	@$(BIN)/python example_project/demo.py

serve: .venv/.has-demo ## Run the example shop until Ctrl-C: web server, worker, admin (PORT=8000)
	@$(BIN)/python example_project/serve.py

# The server, user and password are psql's variables: PGHOST, PGPORT, PGUSER, PGPASSWORD, or a ~/.pgpass.
DATABASE_NAME ?= proletarian
CREATE_DATABASE ?= on
EXAMPLES_MANAGE = DATABASE_URL='postgres:///$(DATABASE_NAME)' $(BIN)/python example_project/manage.py

examples.db.install: .venv/.has-demo ## Role, database (CREATE_DATABASE=off: none) and tables, as DATABASE_NAME
	@$(EXAMPLES_MANAGE) proletarian_install $(if $(filter off,$(CREATE_DATABASE)),,--create-database)

examples.db.uninstall: .venv/.has-demo ## Drop them (CREATE_DATABASE=off: only the tables and the role)
	@$(EXAMPLES_MANAGE) proletarian_uninstall --no-input $(if $(filter off,$(CREATE_DATABASE)),,--drop-database)

test: .venv/.has-test ## Run the tests; PYTEST_ARGS="-k retry" for some of them
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-quick: .venv/.has-test ## Run those without worker processes and without big tables, in a minute
	$(BIN)/python -m pytest -n auto -m "not slow and not live and not server" tests/rules tests/store tests/face \
		--ignore=tests/store/test_admin_plans.py --ignore=tests/store/test_archive_plans.py

# On 3.13, for a thread that is traced by 3.11 hangs when another raises an exception in it, as time limits do.
coverage: .venv/.has-dev ## Run the tests and see which lines and branches they reach, worker processes included
	rm -f .coverage .coverage.*
	$(BIN)/tox run -e py313-django61-pg18-cover -- $(PYTEST_ARGS)

package: .venv/.has-dev ## Build sdist and wheel into dist/, twice, and check them
	rm -rf dist build/again
	$(BIN)/hatchling build --target sdist --target wheel --directory dist
	$(BIN)/hatchling build --target sdist --target wheel --directory build/again
	cd dist && sha256sum * | (cd ../build/again && sha256sum --check --quiet)
	$(BIN)/twine check --strict dist/*

chaos: .venv/.has-test ## Kill what can be killed, for ten minutes: no job may suffer (CHAOS_ARGS="--jobs 2000 --seconds 60")
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

bench: .venv/.has-test ## Measure the speed beside pgbench and bare psycopg (20 minutes; BENCH_ARGS="--quick" two)
	$(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

bench-admin: .venv/.has-test ## Measure the admin's pages beside 10,000,000 archived jobs (BENCH_ADMIN_ARGS="--archived 100000 --jobs 10000" for fewer)
	$(BIN)/python -m tests.benchmarks.admin $(BENCH_ADMIN_ARGS)

comparison: .venv/.has-comparison ## See whether what README's table says of other queues is true, on the real ones
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/comparison

docs: .venv/.has-docs ## Build the documentation into build/docs/html; a warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -d build/docs/doctrees -b html docs build/docs/html

diagrams: ## Draw the documentation's diagrams from their sources, with Graphviz's dot
	python3 docs/diagrams/draw.py

messages: .venv/.has-dev ## Bring the admin's translations up to date, and compile them (wants GNU gettext)
	@command -v msgfmt >/dev/null || { echo "GNU gettext is missing. On Debian: apt install gettext"; exit 1; }
	cd django_proletarian && $(CURDIR)/$(BIN)/django-admin makemessages --all --no-location --no-wrap --no-obsolete
	@# The date of the extraction would be all that changes in most files.
	@for file in django_proletarian/locale/*/LC_MESSAGES/django.po; do \
		sed '/^"POT-Creation-Date:/d' $$file > $$file.new && mv $$file.new $$file; \
	done
	cd django_proletarian && $(CURDIR)/$(BIN)/django-admin compilemessages

lint: .venv/.has-dev ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.has-dev ## Format the code, and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the virtual environment, the example's data and all caches
	rm -rf .venv .demo .tox .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each extra of pyproject.toml that is installed; older than pyproject.toml, it is installed again.
.venv/.has-%: .venv/.made pyproject.toml
	@echo "Installing django-proletarian[$*] into .venv …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, and $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.13 …")'
	@echo "Making .venv with $$($(PYTHON) --version) …"
	@$(PYTHON) -m venv --clear .venv
	@touch $@
