"""The section of permanent instructions: there once, between its lines, and nothing of the person's is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.agents.clients import CLIENTS
from intercom.cli import init_clients, init_instructions
from intercom.cli.init_files import Unmergeable
from intercom.cli.init_instructions import TEXT, InstructionsFile, instructions_file
from tests.cli.test_init import backups, init_with, snapshot
from tests.docs.generated import DOCS

PLACES = {
    "codex": ".codex/AGENTS.md",
    "opencode": ".config/opencode/AGENTS.md",
    "gemini-cli": ".gemini/GEMINI.md",
    "qwen-code": ".qwen/QWEN.md",
}
MINE = "# My rules\n\n- Be brief.\n"
BEGIN, END = "<!-- agent-intercom: begin", "<!-- agent-intercom: end -->\n"


def file(name: str = "gemini-cli") -> InstructionsFile:
    found = instructions_file(CLIENTS[name], Path())
    assert found is not None
    return found


def test_the_clients_that_read_such_a_file_are_known() -> None:
    found = {name: instructions_file(client, Path()) for name, client in CLIENTS.items()}
    assert {name for name, each in found.items() if each is not None} == set(PLACES)


def test_the_text_is_that_of_the_page_and_the_example() -> None:
    assert f"```markdown\n{TEXT}```" in (DOCS / "how-to/instruct-agents.md").read_text()
    assert (DOCS.parent / "examples/agent-instructions/AGENTS.md").read_text() == TEXT


@given(st.text(st.sampled_from("a#- \n\r\ufeff<!"), max_size=30))
def test_the_section_comes_last_and_leaves_no_trace(text: str) -> None:
    newline = "\r\n" if "\r\n" in text else "\n"
    after = file().merged(text)
    assert after.startswith(text)
    assert after.count(BEGIN) == 1
    assert after.endswith(f"{TEXT}{END}".replace("\n", newline))
    assert file().merged(after) == after
    ended = text if not text or text.endswith("\n") else text + newline
    assert file().removed_from(after, None) == ended
    assert file().removed_from(text, None) == text


def test_text_after_the_section_stays_after_it() -> None:
    after = f"{file().merged(MINE)}\n## More of mine\n"
    assert file().merged(after) == after
    assert file().removed_from(after, None) == f"{MINE}\n## More of mine\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_older_section_is_replaced_where_it_stands(monkeypatch: pytest.MonkeyPatch, newline: str) -> None:
    mine, more = MINE.replace("\n", newline), f"{newline}more{newline}"
    with monkeypatch.context() as older:
        older.setattr(init_instructions, "TEXT", "## Older\n\nwords\n")
        before = file().merged(mine) + more
    assert "## Older" in before
    assert file().merged(before) == file().merged(mine) + more


@pytest.mark.parametrize("edit", [("call `reboot`", "call nothing"), ("9. When", "10. When"), (END, f"mine\n{END}")])
def test_a_section_that_a_person_edited_is_theirs(edit: tuple[str, str]) -> None:
    edited = file().merged(MINE).replace(*edit)
    assert file().merged(edited) == edited
    assert file().is_edited(edited)
    assert not file().is_edited(file().merged(MINE))
    assert file().removed_from(edited, None) == MINE


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace(END, ""),
        lambda text: END + text.replace(END, ""),
        lambda text: text + text,
        lambda text: text.replace(BEGIN, "begin"),
    ],
)
def test_lines_that_enclose_no_section_are_left_alone(spoil: object) -> None:
    assert callable(spoil)
    with pytest.raises(Unmergeable, match="do not enclose one section"):
        file().merged(spoil(file().merged(MINE)))


def test_without_the_option_none_are_written(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init_with("--write", "--client", "all") == 0
    assert not any((own_home / place).exists() for place in PLACES.values())
    said = capsys.readouterr().out
    assert "text     none: Gemini CLI is given no instructions on these tools (--instructions writes them)" in said


@pytest.mark.parametrize("mine", [None, MINE])
def test_they_are_written_kept_and_taken_out_again(own_home: Path, mine: str | None) -> None:
    at = {name: own_home / place for name, place in PLACES.items()}
    for each in at.values():
        each.parent.mkdir(parents=True, exist_ok=True)
        if mine is not None:
            each.write_text(mine)
    before = {name: each for name, each in snapshot(own_home).items() if not name.startswith(".local")}
    assert init_with("--write", "--client", "all", "--instructions") == 0
    written = {name: each.read_text() for name, each in at.items()}
    assert set(written.values()) == {file().merged(mine or "")}
    kept = [each.read_text() for path in set(PLACES.values()) for each in backups(own_home / path)]
    assert set(kept) == (set() if mine is None else {mine})
    # What is installed stays so, also where nothing is said about it.
    assert init_with("--write", "--client", "all") == 0
    assert {name: each.read_text() for name, each in at.items()} == written
    assert init_with("--remove") == 0
    after = {name: each for name, each in snapshot(own_home).items() if not name.startswith(".local")}
    assert {name: each for name, each in after.items() if not name.startswith(".config/agent-intercom")} == before
    assert init_clients.recorded() == {}


def test_what_was_written_around_it_since_stays(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init_with("--write", "--client", "gemini-cli", "--instructions") == 0
    at = own_home / PLACES["gemini-cli"]
    at.write_text(f"{MINE}\n{at.read_text()}\nGemini added a memory.\n")
    before = at.read_text()
    capsys.readouterr()
    assert init_with("--remove", "--client", "gemini-cli") == 0
    assert at.read_text() == f"{MINE}\nGemini added a memory.\n"
    assert [each.read_text() for each in backups(at)] == [before]
    assert f"removed  from {at}  (Gemini CLI's instructions)" in capsys.readouterr().out


def test_a_person_is_told_that_an_edited_section_was_kept(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init_with("--write", "--client", "qwen-code", "--instructions") == 0
    at = own_home / PLACES["qwen-code"]
    at.write_text(at.read_text().replace("## Clearance", "## Mine"))
    edited = at.read_text()
    assert init_with("--write", "--client", "qwen-code") == 0
    assert at.read_text() == edited
    assert f"kept     {at}: you edited its section" in capsys.readouterr().out


def test_a_client_whose_instructions_cannot_be_merged_is_left_whole(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = own_home / PLACES["codex"]
    at.parent.mkdir()
    at.write_text(f"{BEGIN} -->\nmine\n")
    assert init_with("--write", "--client", "codex", "--instructions") == 1
    assert at.read_text() == f"{BEGIN} -->\nmine\n"
    assert not (own_home / ".codex/config.toml").exists()
    said = capsys.readouterr().err
    assert "do not enclose one section" in said
    assert f"add by hand to {at}" in said


def test_a_file_that_would_hide_another_of_the_person_s_is_not_made(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = own_home / ".claude/CLAUDE.md"
    mine.parent.mkdir()
    mine.write_text(MINE)
    at = own_home / PLACES["opencode"]
    assert init_with("--write", "--client", "opencode", "--instructions") == 0
    assert not at.exists()
    assert (
        f"text     none: opencode is given no instructions on these tools ({at} would hide" in capsys.readouterr().out
    )
    at.symlink_to(mine)
    assert init_with("--write", "--client", "opencode", "--instructions") == 0
    assert mine.read_text() == file().merged(MINE)
    assert init_with("--remove", "--client", "opencode") == 0
    assert mine.read_text() == MINE


def test_one_file_that_two_clients_read_by_links_keeps_the_section_until_the_last_is_gone(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = own_home / "rules.md"
    rules.write_text(MINE)
    for name in ("codex", "opencode"):
        (own_home / PLACES[name]).parent.mkdir(parents=True)
        (own_home / PLACES[name]).symlink_to(rules)
    assert init_with("--write", "--client", "codex", "--client", "opencode", "--instructions") == 0
    assert rules.read_text() == file().merged(MINE)
    assert init_with("--remove", "--client", "codex") == 0
    assert rules.read_text() == file().merged(MINE)
    said = capsys.readouterr().out
    assert "which opencode reads too" in said
    assert "still in" not in said
    assert init_with("--remove", "--client", "opencode") == 0
    assert rules.read_text() == MINE
    assert (own_home / PLACES["codex"]).is_symlink()
