"""What an atomic handler of the benchmark writes to."""

from django.db import models


class Row(models.Model):
    text = models.TextField()

    def __str__(self) -> str:
        return self.text
