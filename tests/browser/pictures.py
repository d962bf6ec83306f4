"""`python -m tests.browser.pictures`: draw the pictures of the admin in docs/images again, from a shop at work."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tests.settings  # noqa: F401 # starts a server, or finds that of DATABASE_URL
from tests.browser.chromium import chromium
from tests.browser.shop import ROOT, Shop
from tests.browser.visitor import WIDE, Visitor
from tests.scratch import scratch_database

IMAGES = ROOT / "docs" / "images"
# More by day than by night, no minute like another, and a bad quarter of an hour for payments.
LATELY = """
INSERT INTO proletarian.archived_job
SELECT gen_random_uuid(), queue, ':shop.jobs/' || job_type, '["^ ","~:order-id",42]', 1, at - interval '3 seconds',
       at - interval '2 seconds', CASE WHEN number % failing = 0 THEN ':failure' ELSE ':success' END, at
  FROM generate_series(0, 1439) AS minute,
       LATERAL (VALUES (':proletarian/default', 'send_receipt', 6, 1000),
                       (':proletarian/default', 'take_payment', 6, CASE WHEN minute / 14 = 2 THEN 3 ELSE 12 END),
                       (':shop/reports', 'sales_report', 2, 1000)) AS kind (queue, job_type, a_minute, failing),
       LATERAL (SELECT (1.3 + sin(minute / 200.0)) * (0.5 + abs(sin(minute * minute * 1.0))) AS much) AS traffic,
       generate_series(1, (a_minute * much)::int) AS number,
       LATERAL (SELECT now() - (minute + number / 20.0) * interval '1 minute' AS at) AS finished
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, scratch_database() as url, chromium() as browser:
        shop = Shop(url, Path(directory, "web.log"))
        retried, *_ = shop.fill()
        shop.sql("DELETE FROM proletarian.archived_job")
        shop.sql(LATELY)
        shop.sql("ANALYZE")
        visitor = Visitor(browser, shop.address, shop.sessions["boss"])
        IMAGES.mkdir(exist_ok=True)
        for name, path, dark in [("overview", "overview/", False), ("job", f"job/{retried}/change/", True)]:
            visitor.looks(dark=dark, size=WIDE)
            visitor.see(path)
            visitor.page.locator("#content").screenshot(path=IMAGES / f"admin-{name}.png")
        visitor.close()
        shop.close()


if __name__ == "__main__":
    main()
