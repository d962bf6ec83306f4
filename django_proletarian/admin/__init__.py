"""The admin: jobs and archived jobs to look at and to act on, attempts and workers to look at.

Django imports this when it looks for admin modules; each module registers its own.
"""

from django_proletarian.admin import archived_jobs, attempts, jobs, workers

__all__ = ["archived_jobs", "attempts", "jobs", "workers"]
