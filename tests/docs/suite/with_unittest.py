"""The tutorial's shop, tested with the mixin for unittest. Copied and run like its neighbour, which says how."""

from django.test import TestCase, TransactionTestCase, override_settings

from django_proletarian.models import ArchivedJob
from django_proletarian.testing import ProletarianTestMixin
from shop.jobs import send_receipt
from shop.models import Order

URL = "/order/?email=ada@example.com"


class InATransaction(ProletarianTestMixin, TestCase):
    def test_all_methods(self):
        self.assertNotEnqueued()
        with self.captureJobs() as jobs:
            self.client.get(URL)
        order = Order.objects.get()
        self.assertEqual([job.payload for job in jobs], [{"order_id": order.pk}])
        self.assertEnqueued(send_receipt, payload_contains={"order_id": order.pk})
        self.assertEqual(len(self.enqueued_jobs()), 1)
        self.assertEqual([run.outcome for run in self.run_jobs()], ["success"])
        order.refresh_from_db()
        self.assertTrue(order.receipt_sent)
        with self.assertRaises(Order.DoesNotExist):
            self.perform_job(send_receipt, {"order_id": 404})

    test_that_nothing_of_it_is_left = test_all_methods

    @override_settings(PROLETARIAN={"IMMEDIATE": True})
    def test_immediate_jobs_run_at_the_commit(self):
        with self.captureOnCommitCallbacks(execute=True):
            self.client.get(URL)
        self.assertTrue(Order.objects.get().receipt_sent)


class WithCommits(ProletarianTestMixin, TransactionTestCase):
    def test_a_live_worker(self):
        self.assertFalse(ArchivedJob.objects.exists())
        with self.live_worker() as worker:
            self.client.get(URL)
            worker.wait_until_empty()
        self.assertTrue(Order.objects.get().receipt_sent)

    test_that_nothing_of_it_is_left = test_a_live_worker
