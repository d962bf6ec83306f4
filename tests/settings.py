"""Settings of the test run: the server of DATABASE_URL, else one that is started here and ends with the process."""

import atexit
import os

import dj_database_url

if "DATABASE_URL" not in os.environ:
    from tests.postgres import Postgres

    server = Postgres()
    atexit.register(server.close)
    # Processes that tests start find the same server.
    os.environ["DATABASE_URL"] = server.url

SECRET_KEY = "tests"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django_proletarian",
    "tests.app",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
DATABASES = {
    "default": dj_database_url.config(),
    "other": {**dj_database_url.config(), "TEST": {"NAME": "test_proletarian_other"}},
    # There is always somebody who has one.
    "sqlite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TASKS = {"default": {"BACKEND": "django_proletarian.tasks.ProletarianBackend", "QUEUES": []}}
TIME_ZONE = "Europe/Oslo"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
