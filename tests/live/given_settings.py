"""Settings of a worker process that the test gives it: PROLETARIAN, OPTIONS as JSON, and the URL of another alias."""

import json
import os

import dj_database_url

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

PROLETARIAN = json.loads(os.environ.get("PROLETARIAN", "{}"))
DATABASES["default"].setdefault("OPTIONS", {}).update(json.loads(os.environ.get("OPTIONS", "{}")))
if "DIRECT_URL" in os.environ:
    DATABASES["direct"] = dj_database_url.parse(os.environ["DIRECT_URL"])
