"""What happens in the demo, and what must be true afterwards: customers in a browser, the archive, the checks."""

from __future__ import annotations

import http.cookiejar
import re
import urllib.error
import urllib.parse
import urllib.request
from uuid import UUID

from django_proletarian.models import ArchivedJob, Job
from running import Failed, Process, eventually, say
from shop.models import Order, Payment, Product, Receipt, Report

CUSTOMERS = ("ada", "grace", "edsger", "barbara", "donald", "radia", "tony", "frances", "leslie")
GREEDY = "greedy@example.com"
MOST_ATTEMPTS = 3  # of a payment: the first, and the two retries of its strategy


class Browser:
    """Fetches pages and submits their forms, cookies and CSRF token included."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    def submit(self, page: str, path: str, **fields: object) -> tuple[int, str]:
        """Submit the form for `path` that is on `page`; return the status and text of where that leads."""
        _, text = self._fetch(page)
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', text)
        if token is None:
            raise Failed(f"There is no form on {page}.")
        return self._fetch(path, urllib.parse.urlencode({**fields, "csrfmiddlewaretoken": token[1]}).encode())

    def _fetch(self, path: str, data: bytes | None = None) -> tuple[int, str]:
        try:
            with self._opener.open(f"{self._url}{path}", data, timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


class Story:
    """One run of the demo. It looks only at what it has made itself, so the database may hold more."""

    def __init__(self, url: str) -> None:
        self._browser = Browser(url)
        self._orders = Order.objects.filter(pk__gt=newest(Order))
        self._reports = Report.objects.filter(pk__gt=newest(Report))
        self._rolled_back: list[UUID] = []  # ids of jobs that must not exist
        self._report_in_between: Job | None = None  # the report's job when its worker had stopped
        self._exit_codes: list[int] = []  # of the workers

    def place_orders(self) -> None:
        product = Product.objects.get(name="Coffee, 500 g")
        for number, customer in enumerate(CUSTOMERS):
            self._order(f"{customer}@example.com", product, 1 + number % 3)
        status, page = self._order(GREEDY, product, product.stock + 1)
        self._rolled_back = [UUID(found) for found in re.findall(r'-job">([-0-9a-f]{36})<', page)]
        say(f"  {GREEDY} wanted {product.stock + 1}: too many, found out when the jobs were enqueued already.")
        say(f"  Answer {status}; the order and its {len(self._rolled_back)} jobs were rolled back.")

    def _order(self, email: str, product: Product, quantity: int) -> tuple[int, str]:
        say(f"  {email} orders {quantity} × {product}")
        return self._browser.submit("/orders/new/", "/orders/new/", email=email, product=product.pk, quantity=quantity)

    def interrupt_report(self, worker: Process) -> None:
        self._browser.submit("/", "/reports/new/")
        eventually("the worker begins the report", lambda: worker.line_with("handling-job", "sales_report"))
        say("  The report has begun. Stopping its worker, with SIGTERM, as a deployment would.")
        self._exit_codes.append(worker.stop())
        self._report_in_between = Job.objects.filter(pk__in=self._report_jobs()).first()
        waiting = Job.objects.filter(pk__in=self._jobs()).count()
        say(f"  The worker has ended. In the queue: {waiting}, with the report.")

    def finish_with(self, worker: Process) -> None:
        eventually("the queue is empty", lambda: worker.ended() or not Job.objects.filter(pk__in=self._jobs()).exists())
        self._exit_codes.append(worker.stop())

    def show_archive(self) -> None:
        subjects = {job_id: f"order {order.pk}, {order.email}" for order in self._orders for job_id in jobs_of(order)}
        subjects |= {report.job_id: str(report) for report in self._reports if report.job_id is not None}
        line = "  {:<24}{:<32}{:<10}{:>8}{:>12}"
        say(line.format("job type", "payload is about", "status", "attempts", "took"))
        for job in ArchivedJob.objects.filter(pk__in=subjects).order_by("finished_at"):
            took = (job.finished_at - job.enqueued_at).total_seconds()
            say(line.format(job.job_type, subjects[job.pk], job.status, job.attempts, f"{took:.2f} s"))
        say("\n  From enqueued to archived, retries and the change of workers included.")

    def check(self) -> None:
        """Raises Failed if something is not as it must be."""
        orders, payments = list(self._orders), {payment.order_id for payment in Payment.objects.all()}
        archived = ArchivedJob.objects.in_bulk(self._jobs())
        receipts = [archived.get(order.receipt_job_id) for order in orders]
        charges = [(order, archived.get(order.payment_job_id)) for order in orders]
        report, between = self._reports.get(), self._report_in_between
        facts = {
            f"{len(CUSTOMERS)} orders are saved, and the greedy one is not": (
                sorted(order.email.split("@")[0] for order in orders) == sorted(CUSTOMERS)
            ),
            "the two jobs of the order that was rolled back are neither queued nor archived": (
                len(self._rolled_back) == 2
                and not Job.objects.filter(pk__in=self._rolled_back).exists()
                and not ArchivedJob.objects.filter(pk__in=self._rolled_back).exists()
            ),
            "every order has its receipt, at the first attempt, and just one": (
                all(job is not None and (job.status, job.attempts) == ("success", 1) for job in receipts)
                and Receipt.objects.filter(order__in=orders).count() == len(orders)
            ),
            f"every payment was taken, or given up after {MOST_ATTEMPTS} attempts and its order cancelled": all(
                job is not None and payment_is_consistent(order, job, order.pk in payments) for order, job in charges
            ),
            "the report stayed in the queue when its worker stopped, with no attempt counted": (
                between is not None and between.attempts == 0
            ),
            "the second worker wrote it, at the first attempt": (
                report.text != ""
                and (archived[report.job_id].status, archived[report.job_id].attempts) == ("success", 1)
                if report.job_id in archived
                else False
            ),
            "nothing is left in the queue": not Job.objects.filter(pk__in=self._jobs()).exists(),
            "both workers ended with exit code 0": self._exit_codes == [0, 0],
        }
        for fact, is_true in facts.items():
            say(f"  {'✓' if is_true else '✗ NOT TRUE:'} {fact}")
        if not all(facts.values()):
            raise Failed("see above for what is not true.")

    def _report_jobs(self) -> list[UUID]:
        return [report.job_id for report in self._reports.all() if report.job_id is not None]

    def _jobs(self) -> list[UUID]:
        return [*self._report_jobs(), *(job_id for order in self._orders.all() for job_id in jobs_of(order))]


def newest(model: type[Order] | type[Report]) -> int:
    """The highest primary key so far, 0 if there is none."""
    return model.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def jobs_of(order: Order) -> list[UUID]:
    return [job_id for job_id in (order.receipt_job_id, order.payment_job_id) if job_id is not None]


def payment_is_consistent(order: Order, job: ArchivedJob, paid: bool) -> bool:
    if job.status == "success":
        return paid and order.status == Order.Status.PAID and 1 <= job.attempts <= MOST_ATTEMPTS
    return not paid and order.status == Order.Status.CANCELLED and job.attempts == MOST_ATTEMPTS
