"""Settings of the benchmark and of its worker processes; DATABASE_URL is the benchmark's own server."""

import importlib.util

import dj_database_url

SECRET_KEY = "benchmark"
INSTALLED_APPS = ["django_proletarian", "tests.benchmarks.project"]
PROLETARIAN_TASKS = "django_proletarian.tasks.ProletarianBackend"
TASKS = {
    "default": {"BACKEND": PROLETARIAN_TASKS, "QUEUES": []},
    "bare": {"BACKEND": PROLETARIAN_TASKS, "QUEUES": [], "OPTIONS": {"STORE_RESULTS": False}},
}
if importlib.util.find_spec("django_tasks_db") is not None:
    INSTALLED_APPS += ["django_tasks_db"]
    TASKS["theirs"] = {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": []}
DATABASES = {"default": dj_database_url.config()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    # The default of Django itself, which writes two lines for each task, is left out for all.
    "loggers": {
        name: {"handlers": ["stderr"], "level": "WARNING"}
        for name in ("django_proletarian", "django.tasks", "django_tasks", "django_tasks_db")
    },
}
