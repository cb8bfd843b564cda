"""The contents that checkpoints keep: once each, private, on disk, and gone when nothing names them."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intercom.model.errors import DatabaseError
from intercom.store import rows
from intercom.store.checkpoints import Contents

SOURCE = b"def main() -> None:\n    print('hello')\n" * 50
NOISE = b"".join(hashlib.sha256(bytes([number])).digest() for number in range(40))


def name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    return Contents(tmp_path / "state" / "x-contents.db", 2**30)


def test_what_is_kept_is_there_again_once_and_private(contents: Contents) -> None:
    for _ in range(2):
        with contents.open() as held:
            for data in (SOURCE, b"", NOISE[:33]):
                assert held.put(name(data), data)
    with contents.open() as held:
        assert [held.read(name(data)) for data in (SOURCE, b"", NOISE[:33])] == [SOURCE, b"", NOISE[:33]]
        assert held.read(name(b"other")) is None
        assert held.missing([name(SOURCE), name(b"other")]) == {name(b"other")}
        assert rows.count(held.db, "select count(*) from content") == 3
        assert rows.count(held.db, "select sum(length(data)) from content") < len(SOURCE) / 3
    assert stat.S_IMODE(contents.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(contents.path.parent.stat().st_mode) == 0o700


def test_what_no_checkpoint_names_is_swept_and_its_room_given_back(contents: Contents) -> None:
    large = [bytes([n]) + NOISE * 100 for n in range(40)]
    with contents.open() as held:
        for data in (SOURCE, *large):
            held.put(name(data), data + b"")
    before = contents.size()
    with contents.open() as held:
        assert held.sweep([name(SOURCE), name(SOURCE), name(b"never kept")]) == 40
        assert held.read(name(SOURCE)) == SOURCE
        assert held.sweep([name(SOURCE)]) == 0
    assert contents.size() < before


def test_a_full_store_keeps_what_fits_and_says_so(tmp_path: Path) -> None:
    contents = Contents(tmp_path / "small.db", 40_000)
    with contents.open() as held:
        kept = [held.put(name(data), data) for data in (bytes([n]) + NOISE for n in range(200))]
    assert kept[0]
    assert not kept[-1]
    assert contents.size() < 100_000
    with Contents(tmp_path / "small.db", 0).open() as held:
        assert not held.put(name(SOURCE), SOURCE)


@pytest.mark.parametrize("known", ["opened here", "there before"])
@pytest.mark.parametrize("done", ["removed", "replaced"])
def test_a_file_that_another_program_removes_or_replaces_is_told_of_once(
    contents: Contents, known: str, done: str, tmp_path: Path
) -> None:
    with contents.open() as held:
        held.put(name(SOURCE), SOURCE)
    if known == "there before":
        contents = Contents(contents.path, contents.max_bytes)
    assert contents.disturbed() is None
    kept = contents.path.rename(tmp_path / "elsewhere")
    if done == "replaced":
        contents.path.write_bytes(b"")
    found = contents.disturbed()
    assert found is not None
    assert str(contents.path) in found
    assert {"removed": "was removed", "replaced": "was replaced by another file"}[done] in found
    assert "put it back" in found
    assert contents.disturbed() is None
    kept.replace(contents.path)
    with contents.open() as held:
        assert held.read(name(SOURCE)) == SOURCE
    if known == "opened here":
        assert contents.disturbed() is None


@pytest.mark.parametrize("when", ["between two looks", "in a block"])
def test_a_file_that_is_made_again_before_the_next_look_is_told_of(contents: Contents, when: str) -> None:
    with contents.open() as held:
        held.put(name(SOURCE), SOURCE)
        if when == "in a block":
            contents.path.unlink()
            # Not now: what the block does to it is its own.
            assert contents.disturbed() is None
    if when == "between two looks":
        contents.path.unlink()
        with contents.open():
            pass
    assert "was removed" in (contents.disturbed() or "")
    with contents.open():
        pass
    assert contents.disturbed() is None


def test_what_the_store_does_itself_is_no_disturbance(contents: Contents) -> None:
    assert contents.disturbed() is None
    with contents.open() as held:
        for number in range(200):
            data = bytes([number]) + NOISE
            held.put(name(data), data)
    before = contents.size()
    with contents.open() as held:
        held.sweep([])
    assert contents.size() < before
    assert contents.disturbed() is None
    # Nor what it moves aside.
    contents.path.write_bytes(b"not a database at all" * 500)
    with contents.open():
        pass
    assert [file.name for file in contents.path.parent.glob("*damaged*")]
    assert contents.disturbed() is None


def test_a_damaged_store_is_moved_aside_and_begun_anew(contents: Contents) -> None:
    with contents.open() as held:
        held.put(name(SOURCE), SOURCE)
    contents.path.write_bytes(b"not a database at all" * 500)
    with contents.open() as held:
        assert held.read(name(SOURCE)) is None
        assert held.put(name(SOURCE), SOURCE)
    assert [file.name for file in contents.path.parent.glob("*damaged*")]


def test_damage_that_is_met_later_is_refused_once(contents: Contents) -> None:
    with contents.open() as held:
        for number in range(3000):
            data = b"%d" % number
            held.put(name(data), data)
    with contents.path.open("r+b") as file:
        # All but the first page, which tells of the tables.
        file.seek(4096)
        file.write(b"\xff" * (contents.size() - 4096))
    with pytest.raises(DatabaseError, match="damaged and have been moved"), contents.open() as held:
        held.read(name(b"7"))
    with contents.open() as held:
        assert held.put(name(SOURCE), SOURCE)
    assert [file.name for file in contents.path.parent.glob("*damaged*")]


def test_a_place_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseError, match="cannot be opened"), Contents(tmp_path / "file" / "x.db", 10).open():
        pass


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(kept=st.lists(st.binary(max_size=300), max_size=12), named=st.sets(st.integers(0, 11)))
def test_exactly_what_is_named_survives(
    tmp_path_factory: pytest.TempPathFactory, kept: list[bytes], named: set[int]
) -> None:
    contents = Contents(tmp_path_factory.mktemp("sweep") / "x.db", 2**30)
    with contents.open() as held:
        assert all(held.put(name(data), data) for data in kept)
    wanted = {kept[each] for each in named if each < len(kept)}
    with contents.open() as held:
        assert held.sweep(name(data) for data in wanted) == len(set(kept) - wanted)
        assert {data for data in kept if held.read(name(data)) == data} == wanted
