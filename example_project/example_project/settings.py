"""Settings of the example shop: what `startproject` makes, and a few lines more for the jobs."""

import os

import dj_database_url

DEBUG = True
SECRET_KEY = "of an example, so it need not be secret"
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_proletarian",
    "shop",
]

# From DATABASE_URL; manage.py starts a server if there is none. Jobs live beside the orders: that is the whole idea.
DATABASES = {"default": dj_database_url.config()}

# Everything in here has a default. Two jobs run at once; reports, which are slow, run when nothing else is due.
PROLETARIAN = {
    "THREADS": 2,
    "QUEUES": ["proletarian/default", "shop/reports"],
}

# Django's own tasks, which are jobs too: see shop/tasks.py.
TASKS = {"default": {"BACKEND": "django_proletarian.tasks.ProletarianBackend", "QUEUES": []}}
SHOP_TASKS = os.environ.get("SHOP_TASKS") == "yes"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)-5s %(message)s", "datefmt": "%H:%M:%S"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "django_proletarian": {"handlers": ["console"], "level": "INFO"},
        "shop": {"handlers": ["console"], "level": "INFO"},
    },
}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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
ROOT_URLCONF = "example_project.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en-us"
USE_TZ = True
TIME_ZONE = "UTC"
