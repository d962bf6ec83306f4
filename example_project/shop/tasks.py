"""The receipt of `jobs.py` once more, as one of Django's own tasks. SHOP_TASKS=yes makes the shop use this one.

Its row is a job like the other's: the same worker runs it, and the same pages show it. Only its call looks different.
"""

from __future__ import annotations

import logging

from django_proletarian.tasks import task
from shop.models import Order, Receipt

logger = logging.getLogger(__name__)


# Django's own @task would do, but for `atomic`, which that of Django 6.0 does not take.
@task(atomic=True)
def send_receipt(order_id: int) -> int:
    order = Order.objects.select_related("product").get(pk=order_id)
    text = f"Thank you for {order.quantity} × {order.product}, {order.email}."
    receipt = Receipt.objects.create(order=order, text=text)
    logger.info("wrote the receipt of order %s", order.pk)
    return receipt.pk
