"""Write what is made from the code into the reference pages: `python -m tests.docs`."""

from __future__ import annotations

from tests.docs.generated import DOCS, PAGES, page_with

for name in PAGES:
    page = page_with(name)
    if page != (DOCS / name).read_text():
        (DOCS / name).write_text(page)
        print(f"wrote {DOCS / name}")
