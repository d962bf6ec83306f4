"""The shop's jobs. The worker finds this module by its name.

A job runs at least once: a worker that loses its power after the work and before the commit leaves the job for another.
So each handler can run again without harm, and says how.
"""

from __future__ import annotations

import logging

from django.db import transaction
from django.db.models import Sum

from django_proletarian import Job, JobInterrupted, RetryStrategy, job_handler
from shop import provider
from shop.models import Order, Payment, Product, Receipt, Report

logger = logging.getLogger(__name__)


# Atomic: the receipt is written in the transaction that archives the job, so there is one receipt, whatever happens.
@job_handler(atomic=True)
def send_receipt(payload: dict[str, int]) -> None:
    order = Order.objects.select_related("product").get(pk=payload["order_id"])
    Receipt.objects.create(order=order, text=f"Thank you for {order.quantity} × {order.product}, {order.email}.")
    logger.info("wrote the receipt of order %s", order.pk)


def when_the_provider_says(job: Job, error: BaseException) -> RetryStrategy | None:
    """Two more tries, each as late as the provider asked for; none for errors that trying again won't mend."""
    if isinstance(error, provider.ProviderBusy):
        return RetryStrategy(retries=2, delays=[error.retry_after])
    return None


def cancel_order(job: Job, error: BaseException) -> None:
    """Called once the last try has failed. May be called again after a crash, so it looks first."""
    assert isinstance(job.payload, dict)
    with transaction.atomic():
        order = Order.objects.select_for_update(of=["self"]).get(pk=job.payload["order_id"])
        if order.status == Order.Status.PLACED:
            order.product.put_back(order.quantity)
            order.status = Order.Status.CANCELLED
            order.save(update_fields=["status"])
    logger.info("cancelled order %s", order.pk)


# Not atomic: a rollback would not bring the money back. The provider's key makes the payment happen once.
@job_handler(retry_strategy=when_the_provider_says, failed_job=cancel_order)
def take_payment(payload: dict[str, int]) -> None:
    order = Order.objects.select_related("product").get(pk=payload["order_id"])
    amount = order.product.price * order.quantity
    reference = provider.charge(amount, idempotency_key=f"order-{order.pk}")
    with transaction.atomic():
        Payment.objects.get_or_create(order=order, defaults={"amount": amount, "reference": reference})
        Order.objects.filter(pk=order.pk).update(status=Order.Status.PAID)
    logger.info("took the payment of order %s", order.pk)


# Slow, and stopped in the middle when the worker is: its job stays in the queue and starts anew with the next worker.
@job_handler(queue="shop/reports", advanced=True)
def sales_report(job: Job) -> None:
    assert isinstance(job.payload, dict)
    lines = []
    for product in Product.objects.all():
        if job.wait_or_stop(seconds=1):
            logger.info("laid the report aside, the worker stops")
            raise JobInterrupted
        sold = product.order_set.exclude(status=Order.Status.CANCELLED).aggregate(sold=Sum("quantity", default=0))
        lines.append(f"{product}: {sold['sold']} sold, {product.stock} left")
    Report.objects.filter(pk=job.payload["report_id"]).update(text="\n".join(lines))
    logger.info("wrote report %s", job.payload["report_id"])
