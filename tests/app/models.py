"""What handlers of the tests write to."""

from django.db import models


class Entry(models.Model):
    """One line written by a handler."""

    text = models.TextField()
    job_id = models.UUIDField(null=True)

    def __str__(self) -> str:
        return self.text


class UniqueEntry(models.Model):
    """A line that can be written once."""

    text = models.TextField(unique=True)

    def __str__(self) -> str:
        return self.text


class Child(models.Model):
    """A row with a foreign key, which PostgreSQL checks at commit."""

    entry = models.ForeignKey(Entry, on_delete=models.CASCADE)

    def __str__(self) -> str:
        return f"child of {self.entry_id}"
