"""The tutorial's shop, tested where Django puts back what migrations made.

Copied and run like its neighbours, but alone: beside other tests with real commits Django itself can't put back content
types, which it has made anew after those.
"""

import pytest
from django.contrib.contenttypes.models import ContentType
from django.test import TransactionTestCase

from django_proletarian.testing import ProletarianTestMixin
from shop.jobs import send_receipt


class WithSerializedRollback(ProletarianTestMixin, TransactionTestCase):
    serialized_rollback = True

    def test_what_migrations_made_is_there_and_jobs_are_not(self):
        self.assertTrue(ContentType.objects.filter(model="order").exists())
        self.assertNotEnqueued()
        self.client.get("/order/")
        self.assertEqual(len(self.run_jobs()), 1)
        self.client.get("/order/")

    test_nor_after_a_test_that_left_some = test_what_migrations_made_is_there_and_jobs_are_not


@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_what_migrations_made_is_there_and_jobs_are_not(proletarian_jobs, time):
    assert ContentType.objects.filter(model="order").exists()
    proletarian_jobs.assert_not_enqueued()
    send_receipt.enqueue({"order_id": 404})
