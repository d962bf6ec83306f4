"""The admin: jobs and archived jobs to look at and to act on; attempts, workers and the overview to look at.

Django imports this when it looks for admin modules; each module registers its own.
"""

from django.contrib import admin

from django_proletarian.admin import archived_jobs, attempts, jobs, workers
from django_proletarian.models import Overview
from django_proletarian.overview_page import OverviewAdmin

__all__ = ["archived_jobs", "attempts", "jobs", "workers"]

admin.site.register(Overview, OverviewAdmin)
