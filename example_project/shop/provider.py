"""A payment provider as they are: every other call fails, and the answer says when to try again."""

from __future__ import annotations

import random
from decimal import Decimal


class ProviderBusy(Exception):
    """The provider took no payment; it asks to be left alone for `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the payment provider is busy, retry after {retry_after:.1f} s")
        self.retry_after = retry_after


def charge(amount: Decimal, *, idempotency_key: str) -> str:
    """Take a payment and return its reference. The same key pays once, however often it is called."""
    if random.random() < 0.5:
        raise ProviderBusy(retry_after=random.uniform(0.2, 1.5))
    return f"{idempotency_key} {amount}"
