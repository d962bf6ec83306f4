"""The shop's pages: place an order, ask for a report, see how the jobs are doing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from django_proletarian.models import ArchivedJob, Job
from shop import tasks
from shop.forms import OrderForm
from shop.jobs import sales_report, send_receipt, take_payment
from shop.models import Order, OutOfStock, Report


@require_http_methods(["GET", "POST"])
def new_order(request: HttpRequest) -> HttpResponse:
    form = OrderForm(request.POST or None)
    rolled_back: Order | None = None
    if form.is_valid():
        try:
            order = place(form)
        except OutOfStock:
            rolled_back = form.instance
        else:
            messages.success(request, f"Thank you! Order {order.pk} is placed; its receipt and payment are queued.")
            return redirect("index")
    status = 409 if rolled_back is not None else 200
    return render(request, "shop/new_order.html", {"form": form, "rolled_back": rolled_back}, status=status)


@transaction.atomic
def place(form: OrderForm) -> Order:
    """Save the order, enqueue its jobs, take the goods: all of it or, if there are too few, none."""
    order: Order = form.save()
    if settings.SHOP_TASKS:
        order.receipt_job_id = UUID(tasks.send_receipt.enqueue(order.pk).id)
    else:
        order.receipt_job_id = send_receipt.enqueue({"order_id": order.pk})
    order.payment_job_id = take_payment.enqueue({"order_id": order.pk})
    order.save()
    order.product.take(order.quantity)
    return order


@require_POST
@transaction.atomic
def new_report(request: HttpRequest) -> HttpResponse:
    report = Report.objects.create()
    report.job_id = sales_report.enqueue({"report_id": report.pk})
    report.save()
    return redirect("index")


@dataclass(frozen=True, slots=True)
class JobState:
    """A job in the queue or in the archive, as the index shows it."""

    job: Job | ArchivedJob

    @property
    def status(self) -> str:
        if isinstance(self.job, ArchivedJob):
            return str(self.job.status)
        return "to be retried" if self.job.attempts else "queued"

    @property
    def admin_url(self) -> str:
        return reverse(f"admin:django_proletarian_{self.job._meta.model_name}_change", args=[self.job.pk])


@require_GET
def index(request: HttpRequest) -> HttpResponse:
    orders = list(Order.objects.select_related("product")[:20])
    reports = list(Report.objects.all()[:5])
    ids = {order.receipt_job_id for order in orders} | {order.payment_job_id for order in orders}
    states = job_states(job_id for job_id in ids | {report.job_id for report in reports} if job_id is not None)
    context = {
        "orders": [(order, states.get(order.receipt_job_id), states.get(order.payment_job_id)) for order in orders],
        "reports": [(report, states.get(report.job_id)) for report in reports],
        "in_queue": any(isinstance(state.job, Job) for state in states.values()),
    }
    return render(request, "shop/index.html", context)


def job_states(ids: Iterable[UUID]) -> dict[UUID | None, JobState]:
    ids = list(ids)
    # The queue first: a job that is archived between the two queries is then seen in the archive.
    jobs: dict[UUID, Job | ArchivedJob] = {**Job.objects.in_bulk(ids)}
    jobs |= ArchivedJob.objects.in_bulk(ids)
    return {job_id: JobState(job) for job_id, job in jobs.items()}
