"""Settings of the benchmark and of its worker processes; DATABASE_URL is the benchmark's own server."""

import dj_database_url

SECRET_KEY = "benchmark"
INSTALLED_APPS = ["django_proletarian", "tests.benchmarks.project"]
DATABASES = {"default": dj_database_url.config()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"django_proletarian": {"handlers": ["stderr"], "level": "WARNING"}},
}
