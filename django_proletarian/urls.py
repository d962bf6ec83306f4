"""Addresses of ours: `path("proletarian/", include("django_proletarian.urls"))`."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured
from django.urls import path

try:
    from django_proletarian.metrics import metrics
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("prometheus_client"):
        raise
    raise ImproperlyConfigured(
        'django_proletarian.urls needs prometheus-client: pip install "django-proletarian[metrics]"'
    ) from error

app_name = "django_proletarian"
urlpatterns = [path("metrics", metrics, name="metrics")]
