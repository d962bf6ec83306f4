"""A person at a browser: a page in a context of its own, which notices whatever the browser complains of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it may be missing: then these tests are skipped
    from playwright.sync_api import Browser, ConsoleMessage, Page

ADMIN = "/admin/django_proletarian/"
ARTIFACTS = Path(__file__).parents[2] / ".artifacts" / "browser"
WIDE, NARROW = (1280, 800), (360, 740)
# What a page would do that its Content-Security-Policy forbids; the browser tells of it and goes on.
LISTEN = "addEventListener('securitypolicyviolation', e => console.error('forbidden: ' + e.violatedDirective))"
# What is Django's own, on every page of every admin, is for Django to mend.
OURS = {"include": ["#content"], "exclude": ["#toolbar", ".paginator", "#changelist-filter-extra-actions"]}
SERIOUS = ("serious", "critical")


class Visitor:
    """Somebody logged in by a session. `complaints` must be empty at the end of a test."""

    def __init__(self, browser: Browser, address: str, session: str, *, java_script: bool = True) -> None:
        self.context = browser.new_context(
            base_url=address,
            java_script_enabled=java_script,
            # No waiting for what only moves.
            reduced_motion="reduce",
        )
        self.context.add_cookies([{"name": "sessionid", "value": session, "url": address}])
        self.context.set_default_timeout(20_000)
        self.context.add_init_script(LISTEN)
        self.page: Page = self.context.new_page()
        self.looks()
        self.complaints: list[str] = []
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _listen(self, message: ConsoleMessage) -> None:
        # There is no favicon, and a page that is refused is a failed load to the browser.
        ours = ADMIN in message.location["url"] or ADMIN in self.page.url
        if ours and message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def looks(self, *, dark: bool = False, size: tuple[int, int] = WIDE) -> None:
        """From now on at a screen of this size, with this theme."""
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        # The admin's links fade from one theme's colour to the other's, and are hard to read on the way.
        self.page.evaluate("Promise.all(document.getAnimations().map(animation => animation.finished))")

    def see(self, path: str) -> Page:
        """Go to a page of ours in the admin."""
        answer = self.page.goto(ADMIN + path)
        assert answer is not None
        assert answer.status == 200, path
        # Every page was served under the policy, or nothing is shown by its silence.
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        return self.page

    def expect_rows(self, number: int) -> None:
        """Wait for a list of so many rows."""
        from playwright.sync_api import expect

        expect(self.page.locator("#result_list tbody tr")).to_have_count(number)

    def keep(self, name: str, *, whole: bool = False) -> None:
        """A picture of what is on the screen, or of the whole page, among the run's artefacts."""
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=whole)

    def barriers(self, axe: str) -> list[str]:
        """What axe-core finds in our part of the page that keeps somebody out, a line each."""
        complaints = [*self.complaints]
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(axe)
        found = self.page.evaluate("where => axe.run(where, {resultTypes: ['violations']})", OURS)
        # What the policy forbids to axe is not the page's.
        self.complaints[:] = complaints
        return [
            f"{violation['id']} ({violation['impact']}): {node['html'][:200]}"
            for violation in found["violations"]
            if violation["impact"] in SERIOUS
            for node in violation["nodes"]
        ]

    def close(self) -> None:
        self.context.close()
