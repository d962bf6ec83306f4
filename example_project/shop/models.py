"""What the shop keeps. Nothing here knows of jobs, but for the ids that let a page show how they went."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import F


class OutOfStock(Exception):
    """There are fewer of a product than were ordered."""


class Product(models.Model):
    name = models.CharField(max_length=100, unique=True)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    stock = models.PositiveIntegerField()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def take(self, quantity: int) -> None:
        """Take so many from the shelf. Raises OutOfStock if there are fewer."""
        if not Product.objects.filter(pk=self.pk, stock__gte=quantity).update(stock=F("stock") - quantity):
            raise OutOfStock

    def put_back(self, quantity: int) -> None:
        """Put so many on the shelf again."""
        Product.objects.filter(pk=self.pk).update(stock=F("stock") + quantity)


class Order(models.Model):
    class Status(models.TextChoices):
        PLACED = "placed"
        PAID = "paid"
        CANCELLED = "cancelled"

    email = models.EmailField()
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1)])
    status = models.CharField(max_length=10, choices=Status, default=Status.PLACED)
    placed_at = models.DateTimeField(auto_now_add=True)
    receipt_job_id = models.UUIDField(null=True, editable=False)
    payment_job_id = models.UUIDField(null=True, editable=False)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"order {self.pk}"


class Receipt(models.Model):
    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    text = models.TextField()
    written_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"receipt of {self.order}"


class Payment(models.Model):
    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    reference = models.CharField(max_length=100)
    paid_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"payment of {self.order}"


class Report(models.Model):
    text = models.TextField(blank=True)  # empty until the job has written it
    requested_at = models.DateTimeField(auto_now_add=True)
    job_id = models.UUIDField(null=True, editable=False)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"report {self.pk}"
