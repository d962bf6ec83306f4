"""README compares with django-tasks-db, procrastinate and Celery: each cell of its table has a test here.

They run the real things on a real PostgreSQL, of the versions that the extra `comparison` names: `make comparison`.
"""
