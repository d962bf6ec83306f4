"""Settings of the admin's benchmark: the tests', without their handlers, each of which would be a filter."""

from tests.benchmarks.admin_rows import QUEUES
from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as INSTALLED_APPS_OF_THE_TESTS

METRICS_TOKEN = "of-the-benchmark"
INSTALLED_APPS = [app for app in INSTALLED_APPS_OF_THE_TESTS if app != "tests.app"]
PROLETARIAN = {"QUEUES": list(QUEUES), "METRICS_TOKEN": METRICS_TOKEN}
