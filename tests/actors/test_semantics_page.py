"""Every sentence of the page has a test, and every test of the tier a sentence."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "reference" / "actor-semantics.md"


def test_every_numbered_sentence_is_the_name_of_a_test() -> None:
    sentences = re.findall(r"^\d+\. (.+?)\.$", PAGE.read_text(), re.MULTILINE)
    wanted = {"test_" + re.sub(r"[^a-z0-9]+", "_", sentence.lower().replace("'", "")) for sentence in sentences}
    modules = [path for path in HERE.glob("test_semantics_*.py") if path.name != Path(__file__).name]
    found = [name for path in modules for name in re.findall(r"def (test_\w+)", path.read_text())]
    assert len(wanted) == len(sentences) == 73
    assert sorted(found) == sorted(wanted)
