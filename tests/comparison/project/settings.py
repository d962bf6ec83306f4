"""Settings of the project; DATABASE_URL is its database, MESSAGES the directory in which Celery's messages lie."""

import dj_database_url

SECRET_KEY = "comparison"
INSTALLED_APPS = [
    "django_proletarian",
    "django_tasks_db",
    "procrastinate.contrib.django",
    "tests.comparison.project",
]
DATABASES = {"default": dj_database_url.config()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TASKS = {
    "default": {"BACKEND": "django_proletarian.tasks.ProletarianBackend", "QUEUES": []},
    "django-tasks-db": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": []},
}
