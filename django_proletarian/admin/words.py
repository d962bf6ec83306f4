"""Times and states as the admin words them."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils.formats import date_format, number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_proletarian.job_states import JobState
from django_proletarian.overview_page import local

STATES = {
    JobState.RUNNING: gettext_lazy("running"),
    JobState.DUE: gettext_lazy("due"),
    JobState.SCHEDULED: gettext_lazy("scheduled"),
    JobState.RETRYING: gettext_lazy("retrying"),
}
STATUSES = {"success": gettext_lazy("success"), "failure": gettext_lazy("failure")}


def to_the_second(time: datetime) -> str:
    """A date in the viewer's time zone. The admin's own format leaves seconds out, and most jobs live for less."""
    return date_format(local(time), "Y-m-d H:i:s")


def how_long(span: timedelta) -> str:
    """A span of time in its largest unit that makes more than one: "90 seconds", "3 hours". Negative ones are none."""
    seconds = max(0.0, span.total_seconds())
    if seconds < 10:
        return _("%(count)s seconds") % {"count": number_format(seconds, 1)}
    if seconds < 120:
        return ngettext("%(count)s second", "%(count)s seconds", round(seconds)) % {"count": round(seconds)}
    if seconds < 7200:
        minutes = round(seconds / 60)
        return ngettext("%(count)s minute", "%(count)s minutes", minutes) % {"count": minutes}
    if seconds < 172800:
        hours = round(seconds / 3600)
        return ngettext("%(count)s hour", "%(count)s hours", hours) % {"count": hours}
    days = round(seconds / 86400)
    return ngettext("%(count)s day", "%(count)s days", days) % {"count": days}


def from_now(time: datetime, now: datetime) -> str:
    """When something is, as it is said at `now`: "in 5 minutes", "3 hours ago"."""
    if time > now:
        return _("in %(span)s") % {"span": how_long(time - now)}
    return _("%(span)s ago") % {"span": how_long(now - time)}


def told(time: datetime, words: str) -> SafeString:
    """Words about a time, with the time itself for machines and for whoever points at them."""
    return format_html('<time datetime="{}" title="{}">{}</time>', time.isoformat(), to_the_second(time), words)


def told_in_full(time: datetime, words: str) -> SafeString:
    """The time itself, and the words behind it: for a page with room, since nobody can point without a mouse."""
    return format_html('<time datetime="{}">{}</time> ({})', time.isoformat(), to_the_second(time), words)


def badge(kind: str, words: object) -> SafeString:
    """A state in words; the colour of its `kind` says nothing more."""
    return format_html('<span class="proletarian-badge proletarian-{}">{}</span>', kind, words)
