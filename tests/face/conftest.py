"""What tests of pages share."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client


@pytest.fixture
def browser(db: None) -> Client:
    """Somebody who may do everything in the admin."""
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    return client
