"""Write what is made from the code into the reference pages and the site's navigation: `python -m tests.docs`."""

from __future__ import annotations

from tests.docs.generated import DOCS, PAGES, SITE, page_with, site_with

for file, text in [*((DOCS / name, page_with(name)) for name in PAGES), (SITE, site_with())]:
    if text != file.read_text():
        file.write_text(text)
        print(f"wrote {file}")
