"""The example shop's settings, and every page under a Content-Security-Policy that allows its own files only."""

from example_project.settings import *  # noqa: F403
from example_project.settings import MIDDLEWARE as SHOPS_MIDDLEWARE

# Tests log in often.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
MIDDLEWARE = ["tests.browser.csp.content_security_policy", *SHOPS_MIDDLEWARE]
ALLOWED_HOSTS = ["127.0.0.1"]
