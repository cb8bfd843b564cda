"""Edits of clients' files change what they should, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway.client_entries import Dialect
from intercom.gateway.client_files import Unmergeable, locate, parse, put, read_text, remove, with_change_undone
from intercom.model.json_types import JsonObject

VSCODE, CODEX = Dialect.VSCODE, Dialect.CODEX

JSONC = """\
{
  // my servers
  "servers": {
    // first
    "a": {"command": "x"}, // about a
    /* b */ "b": {
      "command": "y", // k
    },
    "c": {"command": "z"} // about c
  },
  "inputs": [ {"id": 1}, ],
}
"""

TOML = '''\
# top
model = "x" # m
rows = [
  [1, 2], # [mcp_servers.a]
]
text = """
[mcp_servers.a]
"""

# servers
[mcp_servers.a]  # header
command = "npx"
args = [
 "]", "# no comment",
]
# inside
[mcp_servers."a".env]
"K=1" = 'v'

# looks
[tui]
x = 1

[mcp_servers]
b.command = "y"
c = { command = "z" }
[[hooks]]
d = 1
'''


@pytest.mark.parametrize(
    ("names", "gone"),
    [
        ("a", ['    "a": {"command": "x"}, // about a\n']),
        ("c", [",\n" + '    "c": {"command": "z"} // about c']),
        ("b", [' "b": {\n      "command": "y", // k\n    },']),
        ("ac", ['    "a": {"command": "x"}, // about a\n', ",\n" + '    "c": {"command": "z"} // about c']),
    ],
)
def test_only_the_entries_are_removed_from_json_with_comments(names: str, gone: list[str]) -> None:
    expected = JSONC
    for each in gone:
        assert each in expected
        expected = expected.replace(each, "", 1)
    assert remove(VSCODE, JSONC, [("servers", name) for name in names]) == expected


@pytest.mark.parametrize(
    ("names", "gone"),
    [
        ("a", [TOML[TOML.index("[mcp_servers.a]  #") : TOML.index("# looks")]]),
        ("b", ['b.command = "y"\n']),
        ("c", ['c = { command = "z" }\n']),
    ],
)
def test_only_the_entries_are_removed_from_toml(names: str, gone: list[str]) -> None:
    expected = TOML
    for each in gone:
        expected = expected.replace(each, "", 1)
    assert remove(CODEX, TOML, [("mcp_servers", name) for name in names]) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "servers": {\n    "own": {\n      "command": "x"\n    }\n  }\n}\n'),
        ('{"a": 1}', '{"a": 1, "servers": {"own": {"command": "x"}}}'),
        ('{"servers":{"a":{}},"b":1}', '{"servers":{"a":{}, "own": {"command": "x"}},"b":1}'),
        ('{\n\t"servers": {}\n}', '{\n\t"servers": {\n\t\t"own": {\n\t\t\t"command": "x"\n\t\t}\n\t}\n}'),
        (
            '{\r\n "servers": {\r\n  "a": {} // a\r\n }\r\n}',
            '{\r\n "servers": {\r\n  "a": {}, // a\r\n  "own": {\r\n   "command": "x"\r\n  }\r\n }\r\n}',
        ),
        (
            '{\n  "servers": {\n    "a": {}, // a\n  },\n}',
            '{\n  "servers": {\n    "a": {}, // a\n    "own": {\n      "command": "x"\n    },\n  },\n}',
        ),
        ('{"servers": { /* none */ }}', '{"servers": {\n  "own": {\n    "command": "x"\n  } /* none */ }}'),
    ],
)
def test_an_entry_is_added_in_the_layout_of_the_file(before: str, after: str) -> None:
    assert put(VSCODE, before, {("servers", "own"): {"command": "x"}}) == after


def test_an_entry_is_added_at_the_end_of_toml() -> None:
    assert put(CODEX, TOML, {("mcp_servers", "o.n"): {"command": "x", "env": {"A": "1"}}}) == (
        TOML + '\n[mcp_servers."o.n"]\ncommand = "x"\n\n[mcp_servers."o.n".env]\nA = "1"\n'
    )


def test_several_entries_go_into_new_tables_below_each_other() -> None:
    entries: dict[tuple[str, ...], JsonObject] = {
        ("projects", "/p", "mcpServers", "a"): {"command": "x"},
        ("projects", "/q", "mcpServers", "b"): {},
    }
    new = put(Dialect.CLAUDE_CODE, '{"z": 1}', entries)
    assert parse(Dialect.CLAUDE_CODE, new) == {
        "z": 1,
        "projects": {"/p": {"mcpServers": {"a": {"command": "x"}}}, "/q": {"mcpServers": {"b": {}}}},
    }


@pytest.mark.parametrize(
    ("dialect", "text", "path"),
    [
        (VSCODE, '{"servers": {"a": {"command": "1"}, "a": {"command": "2"}}}', ("servers", "a")),
        (VSCODE, '{"servers": {"a": {"command": "1"}}, "servers": {"a": {"command": "2"}}}', ("servers", "a")),
        (CODEX, 'mcp_servers = { a = { command = "x" }, b = { command = "y" } }', ("mcp_servers", "a")),
    ],
)
def test_a_layout_that_cannot_be_edited_safely_is_refused(dialect: Dialect, text: str, path: tuple[str, ...]) -> None:
    with pytest.raises(Unmergeable, match=r"cannot be edited safely|name twice"):
        remove(dialect, text, [path])


@pytest.mark.parametrize(
    ("dialect", "text"), [(VSCODE, '{"a": '), (VSCODE, "[]"), (CODEX, "a = "), (VSCODE, "[" * 100_000)]
)
def test_a_text_of_another_form_is_refused_without_its_content(dialect: Dialect, text: str) -> None:
    with pytest.raises(Unmergeable, match=r"^is not"):
        parse(dialect, text)


def test_half_of_a_character_is_written_as_an_escape() -> None:
    new = put(VSCODE, "{}", {("servers", "\ud800"): {"command": "\udfff"}})
    assert json.loads(new.encode()) == {"servers": {"\ud800": {"command": "\udfff"}}}


def test_deep_nesting_elsewhere_does_not_matter() -> None:
    deep = "[" * 400 + "]" * 400
    assert remove(VSCODE, f'{{"servers": {{"a": {{}}}}, "d": {deep}}}', [("servers", "a")]) == (
        f'{{"servers": {{}}, "d": {deep}}}'
    )


def test_a_pipe_and_other_bytes_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b"\xe9")
    assert read_text(tmp_path / "none") is None
    for name, what in (("pipe", "regular"), ("latin", "UTF-8"), (".", "regular")):
        with pytest.raises(Unmergeable, match=what):
            read_text(tmp_path / name)


def test_the_files_of_all_clients_are_found_once_each(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "home/web"
    files = [".claude.json", ".cursor/mcp.json", ".config/Code/User/mcp.json", ".config/Code/User/profiles/p/mcp.json"]
    files += ["web/.mcp.json", "web/.vscode/mcp.json", "web/.codex/config.toml"]
    files += [".gemini/settings.json", ".qwen/settings.json", ".config/opencode/opencode.jsonc"]
    files += ["web/.gemini/settings.json", "web/opencode.json", "web/.opencode/opencode.jsonc"]
    for each in files:
        (home / each).parent.mkdir(parents=True, exist_ok=True)
        (home / each).write_text("")
    codex = tmp_path / "codex"
    codex.mkdir()
    (codex / "config.toml").write_text("")
    found = locate(home, project, {"CODEX_HOME": str(codex)})
    assert {each.path for each in found} == {*(home / each for each in files), codex / "config.toml"}
    assert all((each.workspace == project) is each.path.is_relative_to(project) for each in found)
    # In the home directory itself, Cursor's file is the user's.
    assert [each.workspace for each in locate(home, home, {}) if each.dialect is Dialect.CURSOR] == [None]


LINES = st.lists(st.sampled_from(["a\n", "b\n", "{\n", "  x\n", "\n"]), max_size=12).map("".join)


@given(LINES, LINES, LINES, LINES)
def test_a_change_is_undone_and_later_ones_stay(before: str, after: str, top: str, end: str) -> None:
    assert with_change_undone(after, after, before) == before
    assert with_change_undone(end, after, after) == end
    # Unique lines keep the changes apart.
    first, last = "first 1\nfirst 2\n", "last 1\nlast 2\n"
    changed = f"{top}{first}{after}{last}{end}"
    undone = with_change_undone(changed, f"{first}{after}{last}", f"{first}{before}{last}")
    assert undone == f"{top}{first}{before}{last}{end}"


def test_a_change_whose_lines_were_changed_since_is_not_undone() -> None:
    assert with_change_undone("a\nZ\nc\n", "a\nB\nc\n", "a\nb\nc\n") is None
    assert with_change_undone("a\nB\nmore\nc\n", "a\nB\nc\n", "a\nb\nc\n") is None
