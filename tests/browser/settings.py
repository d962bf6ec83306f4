"""The example shop's settings, with a strict Content-Security-Policy on every page, and passwords that are quick."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from example_project.settings import *  # noqa: F403
from example_project.settings import MIDDLEWARE as MIDDLEWARE_OF_THE_SHOP

MIDDLEWARE = [*MIDDLEWARE_OF_THE_SHOP, "tests.browser.settings.strict"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def strict(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Django 6.0 has such a middleware of its own, and 5.2 has none."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = "default-src 'self'"
        return response

    return respond
