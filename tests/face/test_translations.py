"""The admin in other languages: translations are whole and of the code as it is, and no English is left in a page."""

from __future__ import annotations

import gettext
import re
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import translation

import django_proletarian
from django_proletarian import enqueue
from tests.face.test_admin import ARCHIVE, ATTEMPTS, JOBS, WORKERS, archive, attempt, execute, insert_worker

PACKAGE = Path(django_proletarian.__file__).parent
LANGUAGES = sorted(path.name for path in (PACKAGE / "locale").iterdir())
OVERVIEW = "/admin/django_proletarian/overview/"
PLACEHOLDER = re.compile(r"%\(\w+\)s|%s")

each_language = pytest.mark.parametrize("language", LANGUAGES)
wants_gettext = pytest.mark.skipif(
    not all(map(shutil.which, ("xgettext", "msgmerge", "msgfmt"))), reason="this machine has no GNU gettext"
)


def catalogue(language: str, package: Path = PACKAGE) -> dict[str, set[str]]:
    """Each text of the code with its translations, of which there are two where there is a plural."""
    with (package / "locale" / language / "LC_MESSAGES" / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    texts: dict[str, set[str]] = {}
    for key, translated in compiled._catalog.items():  # type: ignore[attr-defined] # nothing else tells all of them
        texts.setdefault(key[0] if isinstance(key, tuple) else key, set()).add(translated)
    del texts[""]
    return texts


# -- Catalogues ------------------------------------------------------------------------------------------------------


def test_the_language_of_the_originals_home_is_there() -> None:
    assert "nb" in LANGUAGES


@wants_gettext
@each_language
def test_a_catalogue_has_all_texts_of_the_code_and_no_others(language: str, tmp_path: Path) -> None:
    copy = tmp_path / "django_proletarian"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    django_admin(copy, "makemessages", "--all", "--no-location", "--no-wrap", "--no-obsolete")
    where = Path("locale") / language / "LC_MESSAGES" / "django.po"
    kept, extracted = (PACKAGE / where).read_text(), (copy / where).read_text()
    assert re.sub(r'^"POT-Creation-Date:.*\n', "", extracted, flags=re.MULTILINE) == kept, "make messages"
    assert "fuzzy" not in kept
    [header, *entries] = kept.split("\n\n")
    assert "Language: " in header
    assert not [entry for entry in entries if re.search(r'^msgstr(\[\d\])? ""$', entry, re.MULTILINE)]

    django_admin(copy, "compilemessages")
    assert catalogue(language, copy) == catalogue(language), "make messages"


def django_admin(directory: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "django", *arguments], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@each_language
def test_translations_have_the_placeholders_of_what_they_translate(language: str) -> None:
    for text, translations in catalogue(language).items():
        for translated in translations:
            assert translated.strip(), text
            expected = {frozenset(PLACEHOLDER.findall(text))}
            if text == "One more queue is not shown.":  # of which the plural has a number
                expected.add(frozenset({"%(left_out)s"}))
            assert frozenset(PLACEHOLDER.findall(translated)) in expected


# -- Pages -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pages(browser: Client) -> dict[str, str]:
    """Each kind of page in Norwegian, its tags left out, with something of each kind on it."""
    due = enqueue("shop/mail", {"a": 1}, queue="billing", priority=5)
    later = enqueue("shop/mail", queue="billing", process_in=timedelta(hours=3))
    enqueue("shop/mail", queue="billing", process_in=timedelta(seconds=3))
    execute("UPDATE proletarian.job SET attempts = 2 WHERE job_id = %s", later)
    attempt(
        later, "retry", exception_class="ValueError", message="so it goes", traceback="Traceback …", worker_id="shop-1"
    )
    for outcome in ("crash", "timeout", "interrupted", "failure", "success"):
        attempt(later, outcome)
    done, failed = archive(), archive("failure")
    attempt(failed)
    running = {"job_id": str(due), "job_type": "shop/mail", "queue": "billing", "attempt": 1, "seconds": 1.5}
    insert_worker("shop-1", running=[{**running, "progress": {"done": 1500, "total": 3000.5, "message": "page 4"}}])
    insert_worker("shop-2", silent=400)

    def seen(page: str) -> str:
        response = browser.get(page)
        assert response.status_code == 200, page
        return response.content.decode()

    def asked(page: str, action: str, job_id: object) -> str:
        return browser.post(page, {"action": action, "_selected_action": [str(job_id)]}).content.decode()

    with translation.override("nb"):
        return {
            "overview": seen(OVERVIEW),
            "jobs": seen(JOBS),
            "archive": seen(ARCHIVE),
            "attempts": seen(ATTEMPTS),
            "workers": seen(WORKERS),
            **{f"job {job_id}": seen(f"{JOBS}{job_id}/change/") for job_id in (due, later)},
            **{f"archived job {job_id}": seen(f"{ARCHIVE}{job_id}/change/") for job_id in (done, failed)},
            **{action: asked(JOBS, action, later) for action in ("run_now", "reschedule", "move", "cancel")},
            **{action: asked(ARCHIVE, action, failed) for action in ("run_again", "run_copy")},
        }


@pytest.mark.django_db
def test_no_english_is_left_in_a_page(pages: dict[str, str]) -> None:
    translated = {
        text: re.escape(text) for text, ways in catalogue("nb").items() if text not in ways and "%" not in text
    }
    for name, page in pages.items():
        shown = re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)
        shown = shown.replace("Traceback …", "")
        left = [text for text, pattern in translated.items() if re.search(rf"(?<![\w/-]){pattern}(?![\w/-])", shown)]
        assert left == [], name


@pytest.mark.django_db
def test_pages_speak_the_language(pages: dict[str, str]) -> None:
    assert "Eldste forfalt i" in pages["overview"]
    assert "1\xa0500 av 3\xa0000,5 (49 %): page 4" in pages["overview"]
    assert "prøves på nytt" in pages["jobs"]
    assert "om 3 timer" in pages["jobs"]
    assert "billing" in pages["jobs"]
    assert "vellykket" in pages["archive"]
    assert "Ja: Kanseller" in pages["cancel"]


@pytest.mark.django_db
def test_a_languages_comma_gets_into_no_drawing(pages: dict[str, str]) -> None:
    numbers = re.findall(r' (?:x|y|width|height|viewBox)="([^"]*)"', pages["overview"])
    assert numbers
    assert not [number for number in numbers if "," in number or "\xa0" in number]


@pytest.mark.django_db
def test_filters_ask_for_what_is_stored_in_any_language(pages: dict[str, str], browser: Client) -> None:
    assert "?state=retrying" in pages["jobs"]
    assert "status=failure" in pages["archive"]


@pytest.mark.django_db
def test_a_language_that_is_not_there_is_english(browser: Client) -> None:
    with translation.override("fi"):
        assert "Oldest due for" in browser.get(OVERVIEW).content.decode()
