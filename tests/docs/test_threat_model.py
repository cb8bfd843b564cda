"""Each claim of the threat model names a test, and that test is there."""

from __future__ import annotations

import re

from tests.docs.generated import DOCS

TESTS = DOCS.parent / "tests"
#: `file.py` or `file.py::test`, below `tests/`.
NAMED = re.compile(r"`((?:\w+/)+\w+\.py)(?:::(test_\w+))?`")


def test_the_tests_that_the_threat_model_names_exist() -> None:
    named = NAMED.findall((DOCS / "explanation/security.md").read_text())
    assert len(named) > 20
    for file, test in named:
        text = (TESTS / file).read_text()
        assert not test or f"def {test}(" in text, f"{file} has no {test}"
