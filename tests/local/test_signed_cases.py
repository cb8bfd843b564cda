"""What is signed is the same bytes in Python as in the page: the page's tests read the same file."""

from __future__ import annotations

import json

from tests.support.make_signed_cases import FILE, made


def test_the_cases_of_the_page_are_what_is_signed_here() -> None:
    again = "python -m tests.support.make_signed_cases, and npm test in web/"
    assert json.loads(FILE.read_text()) == json.loads(json.dumps(made())), again
