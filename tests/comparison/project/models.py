"""What tasks leave behind, each time that they run."""

from django.db import models


class Run(models.Model):
    """A task has begun: which, and in which process."""

    task = models.TextField()
    pid = models.IntegerField()

    def __str__(self) -> str:
        return f"{self.task} in {self.pid}"
