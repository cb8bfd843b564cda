"""What is shown of a source is cut after masking: the middle of a key is masked although its first line is left out."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attrs import evolve

from intercom.masking import Masker, masked_lines
from intercom.model.card import Card, CardKind, Notice
from intercom.model.request import ChangeKind, FileChange, without_secrets
from intercom.operators.slack.draw import answers, cards
from intercom.operators.slack.draw.answers import Run, output, output_file
from intercom.sessions.processes import monitor_client, monitor_program
from intercom.sessions.processes.monitor_client import Piece, Stream
from intercom.workspace.listing import show
from intercom.workspace.preview import FileVersions, Preview, joined
from intercom.workspace.preview import show as show_changes
from tests.masking.corpus import pem

KEY = pem("PRIVATE KEY")(random.Random(3))
MATERIAL = KEY.split("\n")[1:-1]
NOW = datetime(2026, 11, 23, tzinfo=UTC)


def shows_key(shown: object) -> bool:
    return any(line in str(shown) for line in MATERIAL)


@pytest.mark.parametrize("asked", [(3, 8), (2, 2), (5, None), (10, 14)])
def test_lines_from_the_middle_of_a_key_are_masked(tmp_path: Path, asked: tuple[int, int | None]) -> None:
    (tmp_path / "key.pem").write_text(f"{KEY}\n")
    found = show(tmp_path, "key.pem", asked)
    assert not shows_key(found.text)
    assert found.masked == ("private key",)
    drawn, _ = answers.file(
        found.path,
        found.text,
        found.size,
        found.modified,
        Masker(),
        lines=(found.first, found.last),
        masked=found.masked,
    )
    assert not shows_key(drawn)
    assert "1 secret masked (private key)" in str(drawn.blocks)


def test_the_value_is_masked_when_only_its_line_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "deployment.yaml").write_text("env:\n  - name: API_TOKEN\n    value: aB3dE5fG7hJ9kL1m\n")
    assert show(tmp_path, "deployment.yaml", (3, 3)).text == "    value: [masked: password or key]"


def test_of_a_file_too_large_to_mask_whole_enough_is_masked(tmp_path: Path) -> None:
    before = "x = 1\n" * 400_000
    (tmp_path / "large").write_text(f"{before}{KEY}\n{before}")
    found = show(tmp_path, "large", (400_003, 400_008))
    assert found.line_count == 800_000 + len(KEY.split("\n"))
    assert found.text == "\n".join(["[masked]"] * 6)


def test_the_end_of_an_output_is_masked_with_what_comes_before_it() -> None:
    text = f"{'x = 1' * 10}\n{KEY[: KEY.index('-----END')]}" + "A" * 20
    shown = output("cat key.pem", text, Run.DONE, Masker())
    assert not shows_key(shown)
    beside = output_file("cat key.pem", text * 10, Masker())
    assert not shows_key(beside.text)


@pytest.mark.parametrize("lines_asked", [1, 3, 8])
def test_the_last_output_of_an_agent_is_masked_with_what_comes_before_it(tmp_path: Path, lines_asked: int) -> None:
    monitor_program.Segments(str(tmp_path), "stdout", 1_000_000).add(f"begin\n{KEY[: KEY.index('-----END')]}".encode())
    output = monitor_client.last_output(tmp_path, (Stream.STDOUT,), lines=lines_asked)
    assert output
    assert not shows_key(output)


def test_a_piece_of_output_that_begins_in_a_line_is_masked_with_the_whole_line(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    said = f"export GITHUB_TOKEN={token}\n".encode()
    monitor_program.Segments(str(tmp_path), "stdout", 1_000_000).add(said)
    for start in range(len(said)):
        piece = Piece(said[start:], start, len(said))
        assert token[-8:] not in monitor_client.masked(tmp_path, Stream.STDOUT, piece)


def changed(path: str, before: str, after: str) -> Preview:
    return show_changes([FileVersions(FileChange(path, ChangeKind.WRITE, "", ""), before.encode(), after.encode())])


def drawn(preview: Preview) -> tuple[str, str]:
    """What the message and the file beside it say of this diff."""
    card = Card(
        "c1", CardKind.APPROVAL, "s1", "/work", "Change", NOW, diff=preview.diff, masked=preview.masked, remarks=()
    )
    long = evolve(card, diff=preview.diff + "x\n" * 3_000)
    beside = cards.diff_file(long, Masker())
    return str(cards.card(card, Masker())), beside.text


@pytest.mark.parametrize("line", [5, 8, 10])
@pytest.mark.parametrize("after", ["A" * 64, "x = 1", None])
def test_a_hunk_from_the_middle_of_a_key_is_masked(line: int, after: str | None) -> None:
    lines = KEY.split("\n")
    new = [*lines[:line], *([] if after is None else [after]), *lines[line + 1 :]]
    preview = changed("key.pem", f"{KEY}\n", "\n".join(new) + "\n")
    # The terminal shows it as it is: it stays on the machine.
    assert shows_key(preview.diff)
    assert "BEGIN" not in preview.diff
    message, file = drawn(preview)
    for shown in (message, file):
        assert not shows_key(shown)
        assert "A" * 64 not in shown
        assert "1 secret masked (private key)" in shown
        assert "[masked]" in shown


def test_a_hunk_takes_the_masked_lines_of_either_side() -> None:
    before = (
        "- name: API_TOKEN\n" + "# a\n" * 5 + "- name: API_TOKEN\n  value: aB3dE5fG7hJ9kL1m\n# b\n# c\n# d\n# e\nold\n"
    )
    preview = changed("a.yaml", before, before.replace("old", "new\nmore").replace("# b\n# c", "# c"))
    message, file = drawn(preview)
    for shown in (message, file):
        assert "aB3dE5fG7hJ9kL1m" not in shown
        assert "+more" in shown
        assert "-old" in shown


def test_lines_of_several_files_are_replaced_where_they_stand() -> None:
    one = changed("a.pem", f"{KEY}\n", f"{KEY[:-100]}\n")
    both = joined([one, show_changes([]), one])
    text = without_secrets(both.diff, both.masked)
    assert not shows_key(text)
    assert text.count("\n") == both.diff.count("\n")
    kept = [new for old, new in zip(both.diff.split("\n"), text.split("\n"), strict=True) if old == new]
    assert sum(line.startswith("diff --git") for line in kept) == 2
    assert all(line[:1] in "+- @d" for line in text.split("\n"))


def test_lines_are_masked_with_what_stands_around_them() -> None:
    lines = [
        *["x = 1\n"] * 50_000,
        *(f"{line}\n" for line in KEY.split("\n")),
        *["y = 2\n"] * 50_000,
        "password='tr0ub4dor-3'",
    ]
    wanted = [0, 10, 49_999, 50_004, 50_007, 60_000, len(lines) - 1]
    assert masked_lines(lines, wanted) == {
        50_004: "[masked]\n",
        50_007: "[masked]\n",
        len(lines) - 1: "password='[masked: password or key]'",
    }
    assert masked_lines(lines, []) == {}


@pytest.mark.parametrize("room", [20, 60, 119, 121, 149, 300, 1_799, 2_800])
def test_a_secret_that_a_limit_cuts_is_masked(room: int) -> None:
    """Titles, texts and lines are cut to length; a token that begins before the cut is no token behind it."""
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    for text in (f"{'x' * room} {token}", f"{'y ' * (room // 2)}password='{token[4:]}'", f"{'z' * room}\n{KEY}"):
        card = Card("c1", CardKind.PROMPT, "s1", "/work", text[:10_000], NOW, body=text, detail=text, note=text)
        notice = Notice(text, "info", NOW)
        for drawn in (
            cards.card(card, Masker()),
            cards.escalation(card, Masker()),
            cards.notice(notice, Masker()),
        ):
            assert token[4:14] not in str(drawn)
            assert not shows_key(drawn)
