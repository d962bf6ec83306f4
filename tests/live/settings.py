"""Settings of a worker process whose handlers keep their connections from job to job."""

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

DATABASES["default"]["CONN_MAX_AGE"] = None
