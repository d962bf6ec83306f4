"""What people may do to jobs in the admin: each action takes a permission and asks once more before it is done.

The page that asks is posted to the list, as is the action itself; so a list's filters still hold, and "all" are all
that they find, up to a limit. Who did what is written down as the admin does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import DatabaseError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.formats import number_format
from django.utils.timezone import get_current_timezone_name
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_proletarian import conf, job_actions, names, priorities
from django_proletarian.admin.filters import known_queues
from django_proletarian.admin.lists import reading_by_index
from django_proletarian.admin.words import to_the_second
from django_proletarian.job_actions import ActedOn, Action, Left, Report
from django_proletarian.models import Job

MOST_ACTED_ON = 20_000  # jobs at a time; as many as a list counts
MOST_NAMED = 20  # jobs on the page that asks
TEMPLATE = "admin/django_proletarian/confirm_action.html"


# -- What there is to do ---------------------------------------------------------------------------------------------


class Offer(Protocol):
    """One action, in the words of its page."""

    name: str
    permission: str  # of the model that the list shows, without its "_job" or "_archivedjob"
    label: Any
    explanation: Any

    def form(self, data: Any) -> forms.Form:
        """What is to be filled in; None for a form to show."""

    def action(self, form: forms.Form, user: str) -> Action: ...

    def done(self, count: int) -> str:
        """What to say of so many jobs."""

    def logged(self, form: forms.Form, job: ActedOn) -> str:
        """What the log says of a job."""


class NothingToFillIn(forms.Form):
    pass


class Simple:
    def form(self, data: Any) -> forms.Form:
        return NothingToFillIn(data)


class RunNow(Simple):
    name, permission = "run_now", "run"
    label = gettext_lazy("Run now")
    explanation = gettext_lazy("They become due at once, whatever they wait for. Those that are due keep their places.")

    def action(self, form: forms.Form, user: str) -> Action:
        return job_actions.RunNow()

    def done(self, count: int) -> str:
        return ngettext("%(count)s job is due now.", "%(count)s jobs are due now.", count)

    def logged(self, form: forms.Form, job: ActedOn) -> str:
        return "Made due now."


class RescheduleForm(forms.Form):
    process_at = forms.DateTimeField(
        label=gettext_lazy("Next run"), widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"})
    )

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        zone = _("In the time zone %(zone)s. A date that has passed means now.")
        self.fields["process_at"].help_text = zone % {"zone": get_current_timezone_name()}


class Reschedule:
    name, permission = "reschedule", "reschedule"
    label = gettext_lazy("Reschedule")
    explanation = gettext_lazy("They run at the date that you give, or as soon after it as a worker is free.")

    def form(self, data: Any) -> forms.Form:
        return RescheduleForm(data)

    def action(self, form: forms.Form, user: str) -> Action:
        return job_actions.Reschedule(form.cleaned_data["process_at"])

    def done(self, count: int) -> str:
        return ngettext("%(count)s job was rescheduled.", "%(count)s jobs were rescheduled.", count)

    def logged(self, form: forms.Form, job: ActedOn) -> str:
        return f"Rescheduled to {to_the_second(form.cleaned_data['process_at'])}."


class MoveForm(forms.Form):
    queue = forms.CharField(
        label=gettext_lazy("Queue"),
        help_text=gettext_lazy("Its jobs wait until a worker is asked for it."),
        widget=forms.TextInput(attrs={"list": "proletarian-queues"}),
    )
    priority = forms.IntegerField(
        label=gettext_lazy("Priority"),
        required=False,
        min_value=priorities.LOWEST,
        max_value=priorities.HIGHEST,
        help_text=gettext_lazy("Empty, each job keeps the one that it has."),
    )

    def clean(self) -> dict[str, Any]:
        values = self.cleaned_data
        if "queue" not in values or "priority" not in values:
            return values
        values["queue"], of_queue = conf.queue_and_priority(names.parse(values["queue"]))
        if of_queue and values["priority"] not in (None, of_queue):
            self.add_error("priority", _("The name of the queue has another one."))
        elif of_queue:
            values["priority"] = of_queue
        if values["queue"] in priorities.NAMELESS:
            self.add_error("queue", _("This is no name."))
        return values


class Move:
    name, permission = "move", "move"
    label = gettext_lazy("Move to another queue")
    explanation = gettext_lazy("They wait in the other queue then, for its workers, and run at the time that they had.")

    def form(self, data: Any) -> forms.Form:
        return MoveForm(data)

    def action(self, form: forms.Form, user: str) -> Action:
        return job_actions.Move(form.cleaned_data["queue"], form.cleaned_data["priority"])

    def done(self, count: int) -> str:
        return ngettext("%(count)s job was moved.", "%(count)s jobs were moved.", count)

    def logged(self, form: forms.Form, job: ActedOn) -> str:
        return f"Moved to {names.shown(names.from_stored(job.queue))}."


class Cancel(Simple):
    name, permission = "cancel", "cancel"
    label = gettext_lazy("Cancel")
    explanation = gettext_lazy(
        "They are archived as failures without having run; no failed-job callback is called. Run them again from there."
    )

    def action(self, form: forms.Form, user: str) -> Action:
        is_recorded = conf.settings().record_attempts != "none"
        return job_actions.Cancel(f"Cancelled by {user}.", is_recorded=is_recorded)

    def done(self, count: int) -> str:
        return ngettext("%(count)s job was cancelled.", "%(count)s jobs were cancelled.", count)

    def logged(self, form: forms.Form, job: ActedOn) -> str:
        return "Cancelled."


class RunAgain(Simple):
    name, permission = "run_again", "rerun"
    label = gettext_lazy("Run again")
    explanation = gettext_lazy(
        "They leave the archive and are due at once, with the ids that they have and no attempts."
    )

    def action(self, form: forms.Form, user: str) -> Action:
        return job_actions.RunAgain()

    def done(self, count: int) -> str:
        return ngettext("%(count)s job is back in the queue.", "%(count)s jobs are back in their queues.", count)

    def logged(self, form: forms.Form, job: ActedOn) -> str:
        return "Run again."


class RunCopy(Simple):
    name, permission = "run_copy", "copy"
    label = gettext_lazy("Run a copy")
    explanation = gettext_lazy("New jobs like them, with ids of their own, are due at once. They stay in the archive.")

    def action(self, form: forms.Form, user: str) -> Action:
        return job_actions.RunCopy(conf.resolved("JOB_ID_STRATEGY"))

    def done(self, count: int) -> str:
        return ngettext("%(count)s copy is in the queue.", "%(count)s copies are in their queues.", count)

    def logged(self, form: forms.Form, job: ActedOn) -> str:
        return f"Run as a copy, {job.copy_id}."


ON_JOBS: tuple[Offer, ...] = (RunNow(), Reschedule(), Move(), Cancel())
ON_ARCHIVED_JOBS: tuple[Offer, ...] = (RunAgain(), RunCopy())


# -- How it is done --------------------------------------------------------------------------------------------------


class ActingAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # generic in the stubs only
    """A list with offers. Who may take one has its permission, beside the one to see the list."""

    offers: Sequence[Offer] = ()
    database: str

    def offered(self, request: HttpRequest) -> list[Offer]:
        return [offer for offer in self.offers if self._may(request, offer.permission)]

    def _may(self, request: HttpRequest, permission: str) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.{permission}_{self.opts.model_name}")

    def has_run_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "run")

    def has_reschedule_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "reschedule")

    def has_move_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "move")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "cancel")

    def has_rerun_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "rerun")

    def has_copy_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "copy")


def as_actions(offers: Sequence[Offer]) -> list[Callable[[ActingAdmin, HttpRequest, QuerySet[Any]], Any]]:
    """The offers as Django's admin takes actions."""
    return [_as_action(offer) for offer in offers]


def _as_action(offer: Offer) -> Callable[[ActingAdmin, HttpRequest, QuerySet[Any]], Any]:
    @admin.action(permissions=[offer.permission], description=offer.label)
    def act(model_admin: ActingAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return _asked_or_done(offer, model_admin, request, queryset)

    act.__name__ = offer.name  # by which the form names it
    return act


def _asked_or_done(
    offer: Offer, model_admin: ActingAdmin, request: HttpRequest, queryset: QuerySet[Any]
) -> HttpResponse | None:
    """The page that asks; None when it was done, for Django to show the list again."""
    is_confirmed = "post" in request.POST
    form = offer.form(request.POST if is_confirmed else None)
    with reading_by_index(model_admin.database):
        job_ids = list(queryset.values_list("pk", flat=True)[: MOST_ACTED_ON + 1])
        if not (is_confirmed and form.is_valid()):
            named = list(queryset[:MOST_NAMED])
            return TemplateResponse(
                request, TEMPLATE, _page(offer, model_admin, request, form, job_ids=job_ids, named=named)
            )
    _do(offer, model_admin, request, form, job_ids[:MOST_ACTED_ON])
    return None


def _page(
    offer: Offer,
    model_admin: ActingAdmin,
    request: HttpRequest,
    form: forms.Form,
    *,
    job_ids: Sequence[UUID],
    named: Sequence[Model],
) -> dict[str, Any]:
    request.current_app = model_admin.admin_site.name  # as the admin itself does
    count = min(len(job_ids), MOST_ACTED_ON)
    return {
        **model_admin.admin_site.each_context(request),
        "title": offer.label,
        "count": count,
        "question": ngettext("%(count)s job", "%(count)s jobs", count) % {"count": number_format(count)},
        "explanation": offer.explanation,
        "leaves_running": model_admin.model is Job,
        "limit": number_format(MOST_ACTED_ON) if len(job_ids) > MOST_ACTED_ON else "",
        "action": offer.name,
        "back": request.get_full_path(),
        "form": form,
        "jobs": named,
        "more": max(0, count - len(named)),
        "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
        "select_across": request.POST.get("select_across", "0"),
        "queues": sorted(known_queues(model_admin.database)) if "queue" in form.fields else [],
        "action_checkbox_name": ACTION_CHECKBOX_NAME,
        "opts": model_admin.opts,
        "media": model_admin.media + form.media,
    }


def _do(
    offer: Offer, model_admin: ActingAdmin, request: HttpRequest, form: forms.Form, job_ids: Sequence[UUID]
) -> None:
    user_id: Any = request.user.pk  # who is not logged in sees no list
    content_type = ContentType.objects.get_for_model(model_admin.model)

    def log(done: list[ActedOn]) -> None:
        LogEntry.objects.bulk_create(
            LogEntry(
                user_id=user_id,
                content_type=content_type,
                object_id=str(job.job_id),
                object_repr=f"{names.from_stored(job.job_type)} {job.job_id}"[:200],
                action_flag=CHANGE,
                change_message=offer.logged(form, job),
            )
            for job in done
        )

    action = offer.action(form, request.user.get_username())
    try:
        report = job_actions.perform(model_admin.database, conf.settings().tables, action, job_ids, log)
    except DatabaseError as error:
        reason = str(error).partition("\n")[0]
        told = _("The database refused, so no more was done: %(reason)s") % {"reason": reason}
        model_admin.message_user(request, told, messages.ERROR)
        return
    _tell(offer, model_admin, request, report)


def _tell(offer: Offer, model_admin: ActingAdmin, request: HttpRequest, report: Report) -> None:
    if report.done:
        count = len(report.done)
        told = offer.done(count) % {"count": number_format(count)}
        model_admin.message_user(request, told, messages.SUCCESS)
    for why, words in _words_for_left().items():
        left = [job_id for job_id, reason in report.left.items() if reason is why]
        if not left:
            continue
        values = {
            "count": number_format(len(left)),
            "ids": _some(left),
            "reason": next(iter(report.errors.values()), ""),
        }
        level = messages.ERROR if why is Left.FAILED else messages.WARNING
        model_admin.message_user(request, words(len(left)) % values, level)


def _words_for_left() -> dict[Left, Callable[[int], str]]:
    return {
        Left.RUNNING: lambda count: ngettext(
            "%(count)s job runs now and was left alone: %(ids)s",
            "%(count)s jobs run now and were left alone: %(ids)s",
            count,
        ),
        Left.GONE: lambda count: ngettext(
            "%(count)s job is no longer here: %(ids)s", "%(count)s jobs are no longer here: %(ids)s", count
        ),
        Left.QUEUED: lambda count: ngettext(
            "%(count)s job is in the queue already, and was left alone: %(ids)s",
            "%(count)s jobs are in the queue already, and were left alone: %(ids)s",
            count,
        ),
        Left.FAILED: lambda count: ngettext(
            "%(count)s job was left as it was (%(ids)s), since the database refused: %(reason)s",
            "%(count)s jobs were left as they were (%(ids)s), since the database refused, the first with: %(reason)s",
            count,
        ),
    }


def _some(job_ids: Sequence[UUID]) -> str:
    named = ", ".join(str(job_id) for job_id in job_ids[:3])
    return f"{named}, …" if len(job_ids) > 3 else named
