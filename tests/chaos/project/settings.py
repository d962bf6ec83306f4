"""Settings of the chaos suite's driver and of its workers; DATABASE_URL is the server itself, or a pooler before it."""

import os

import dj_database_url

NAME = os.environ.get("CHAOS_NAME", "chaos")

SECRET_KEY = "chaos"
INSTALLED_APPS = ["django_proletarian", "tests.chaos.project"]
DATABASES = {"default": {**dj_database_url.config(), "OPTIONS": {"application_name": NAME}, "CONN_MAX_AGE": 5}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"timed": {"format": "%(asctime)s %(process)d %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "timed"}},
    "loggers": {"django_proletarian": {"handlers": ["stderr"], "level": "INFO"}},
}
