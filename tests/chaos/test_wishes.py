"""Faults on demand: what is written comes true, once, and in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faults import Wish, Wishes


def test_a_wish_is_a_kind_a_target_and_a_count() -> None:
    assert Wish.read("kill:journal.committed:3\n") == Wish("kill", "journal.committed", 3)
    assert Wish.read("crash:session/1:2:4") == Wish("crash", "session/1:2", 4)


@pytest.mark.parametrize("text", ["", "kill", "kill:x", "kill:x:y", "spare:x:1"])
def test_anything_else_is_none(text: str) -> None:
    assert Wish.read(text) is None


def test_wishes_come_true_one_after_the_other_at_their_count(tmp_path: Path) -> None:
    file = tmp_path / "faults"
    first, second = Wish("kill", "here", 2), Wish("crash", "Clerk", 1)
    wishes = Wishes(file, [first, second], began=float("-inf"))
    assert wishes.due("kill", ("there",)) is None
    assert wishes.due("kill", ("here",)) is None
    assert wishes.due("crash", ("Clerk", "clerk/1", "clerk")) is None, "it is not its turn"
    assert wishes.due("kill", ("here",)) == first
    assert file.read_text() == "crash:Clerk:1\n", "the next life goes on from there"
    assert wishes.due("crash", ("Clerk", "clerk/1", "clerk")) == second
    assert file.read_text() == ""
    assert (tmp_path / "faults.done").read_text() == "kill:here:2\ncrash:Clerk:1\n"
