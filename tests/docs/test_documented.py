"""Nothing a person or a program can meet goes undocumented, and no page tells of what is not there."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import attrs
import pytest

from intercom.agents import role_token
from intercom.agents.clients import default_call_waits
from intercom.agents.http import access_rules, streamable
from intercom.agents.shim_connection import Hello
from intercom.cli import ctl, main
from intercom.cli.inbox.board import KEYS
from intercom.model.card import CardKind
from intercom.model.config_tables import tables
from intercom.model.errors import ERROR_CODES
from intercom.operators import metrics
from intercom.operators.commands.json_forms import _card
from tests.cli.inbox_pictures import MOVING, PICTURES
from tests.clients import pypi
from tests.docs.generated import BEGIN, DOCS, END, PAGES, PARTS, ROOT, SITE, page_with, protocols, site_with
from tests.slack_standin.scenes import SCENES


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_says_what_the_code_says(name: str) -> None:
    text = (DOCS / name).read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert text == page_with(name), "run python -m tests.docs and look at what it changed"


def test_every_page_has_its_place_in_the_navigation() -> None:
    """Decisions are listed by themselves."""
    placed = [f"{part}/{name}.md" for part, (_, groups) in PARTS.items() for names in groups.values() for name in names]
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}
    assert sorted(placed) == sorted(page for page in there if "/decisions/" not in page), "add it to a group of PARTS"
    assert SITE.read_text() == site_with(), "run python -m tests.docs"


def test_every_error_code_is_on_its_page_with_its_meaning_and_a_way_out() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", (DOCS / "reference/errors.md").read_text(), re.MULTILINE)
    assert {code: meaning for code, meaning, _ in rows} == ERROR_CODES
    assert [code for code, *_ in rows] == list(ERROR_CODES)
    assert all(len(way_out) > 10 for *_, way_out in rows)


def test_no_error_has_a_code_that_is_not_on_that_page() -> None:
    given = {
        (file.name, word.value.value)
        for file in (ROOT / "intercom").rglob("*.py")
        for each in ast.walk(ast.parse(file.read_text()))
        if isinstance(each, ast.Call)
        for word in each.keywords
        if word.arg == "code" and isinstance(word.value, ast.Constant) and isinstance(word.value.value, str)
    }
    assert len(given) > 30
    assert [(file, code) for file, code in sorted(given) if code not in ERROR_CODES] == []


def test_every_setting_that_a_page_names_with_its_table_exists() -> None:
    """An unknown setting is a fault of the whole file, with which no server starts."""
    known = {(table.name, each.name) for table in tables() for each in table.settings}
    free = {table.name for table in tables() if table.free}
    named = [
        (page.name, *found)
        for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
        # In `[operator] robin` it is the role of who speaks in a room.
        for found in re.findall(r"`\[(?!operator\]|team\])([a-z_]+)\]\s+(\w+)", page.read_text())
    ]
    assert len(named) > 30
    assert [each for each in named if each[1] not in free and each[1:] not in known] == []


def test_a_reverse_proxy_is_told_of_every_header_that_the_server_reads() -> None:
    page = (DOCS / "how-to/reverse-proxy.md").read_text()
    (part,) = re.findall(r"^- Pass on .*?(?=^- )", page, re.MULTILINE | re.DOTALL)
    told = tuple(name.lower() for name in re.findall(r"`([\w-]+)`", part))
    read = {*streamable._FIELDS, *access_rules._HEADERS, role_token.HEADER, b"host", b"origin", b"authorization"}
    begin = tuple(name for name in told if name.endswith("-"))
    assert [name for name in map(bytes.decode, read) if name not in told and not name.startswith(begin)] == []


@pytest.mark.parametrize(("label", "values"), [("kind", map(str, CardKind)), ("channel", metrics._CHANNELS)])
def test_every_value_of_a_label_of_the_metrics_is_on_their_page(label: str, values: Iterable[str]) -> None:
    page = (DOCS / "reference/metrics.md").read_text().partition(BEGIN)[0]
    (part,) = re.findall(rf"^- `{label}`: (.*?)(?=\n- )", page, re.MULTILINE | re.DOTALL)
    # What ended undecided is told with `decision`.
    assert {*values, "none"} - {"none", *re.findall(r"`(\w+)`", part)} == set()


def test_every_field_of_a_card_and_every_key_that_answers_one_are_on_the_page_of_ctl() -> None:
    _, _, page = (DOCS / "reference/ctl.md").read_text().partition(END)
    told = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert [name for name in _card.attributes if name not in told] == []
    for kind, keys in KEYS.items():
        row = next(line for line in page.splitlines() if re.match(rf"\| [^|]*\(`{kind}`\)", line))
        assert re.findall(r"`(\w)`", row) == [key.key for key in keys], kind


def test_every_client_that_is_known_is_on_its_page_with_the_time_it_is_given() -> None:
    page = (DOCS / "reference/clients.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    told = {name: row[6].strip() for row in rows if len(row) == 8 for name in re.findall(r"`([^`]+)`", row[2])}
    known = {name: f"{seconds:g} seconds" if seconds else "no limit" for name, seconds in default_call_waits().items()}
    assert told == known


def test_the_versions_of_clients_and_frameworks_are_those_that_the_tests_run() -> None:
    npm = json.loads((ROOT / "tests/clients/package.json").read_text())["dependencies"]
    python = (*pypi.FRAMEWORKS, *pypi.LANGGRAPH, *pypi.BRIDGE, *(each[0] for each in pypi.OLDER_SDKS.values()))
    pins = [*npm.items(), *(re.sub(r"(-slim)?\[.*\]", "", each).split("==") for each in python)]
    page = (DOCS / "reference/clients.md").read_text()
    rows = re.findall(r"^\| (.*?) \| ([\d., ]+) \| ", page.partition("\nTried by hand")[0], re.MULTILINE)
    told = {cell: set(versions.split(", ")) for cell, versions in rows}
    assert len(told) > 15
    assert told == {
        cell: {version for name, version in pins if name in re.findall(r"[@\w/.-]+", cell.lower())} for cell in told
    }


def test_the_files_that_the_architecture_names_exist() -> None:
    text = (DOCS / "explanation/architecture.md").read_text()
    named = re.findall(r"`((?:\w+/)+(?:[\w*]+\.py)?)`", text)
    assert len(named) > 100
    assert [name for name in named if not any(list(home.glob(name)) for home in (ROOT / "intercom", ROOT))] == []


def test_every_field_of_the_greeting_is_on_the_page_of_the_wire() -> None:
    greeting = (DOCS / "reference/shim-wire.md").read_text().partition("\n## Afterwards\n")[0]
    rows = re.findall(r"^\| (`.*?) \|", greeting, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert told == {each.name for each in attrs.fields(Hello)}


def test_every_message_says_what_it_is_for() -> None:
    silent = [
        f"{file.parent.name}.{each.name}"
        for file in protocols()
        for each in ast.parse(file.read_text()).body
        if isinstance(each, ast.ClassDef) and not ast.get_docstring(each)
    ]
    assert silent == []


def test_every_page_can_be_reached_from_the_first_one() -> None:
    seen: set[Path] = set()
    ahead = [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text())
        ahead += [(page.parent / link).resolve() for link in links]
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} == {str(p.relative_to(DOCS)) for p in seen}


def test_every_picture_is_one_that_the_command_takes_and_is_shown_somewhere() -> None:
    pictures = {file.name for file in (DOCS / "images").iterdir()}
    kept = json.loads((ROOT / "web/tests/pictures/kept.json").read_text())
    taken = {f"slack-{name}.png" for name in SCENES} | {f"web-{name}.png" for name in kept}
    assert pictures == taken | {f"{name}.svg" for name in (*PICTURES, MOVING)}
    shown = {
        Path(link).name for page in DOCS.rglob("*.md") for link in re.findall(r"!\[[^\]]+\]\((\S+)\)", page.read_text())
    }
    assert shown == pictures


def test_neither_a_drawing_nor_the_theme_fetches_anything() -> None:
    """A script or an address of another host would be run or asked for by everybody who reads the page."""
    for file in (DOCS / "images").glob("*.svg"):
        told = [(each.tag, *each.attrib.values(), each.text or "") for each in ElementTree.parse(file).iter()]
        assert not [each for each in told if each[0].endswith("script") or "url(http" in each[-1]]
        assert not [value for each in told for value in each[1:-1] if value.startswith(("http", "//"))]
    assert "highlightjs: false" in SITE.read_text()


def test_no_heading_begins_with_a_digit() -> None:
    """The site's script takes the anchor of a heading for a CSS selector, and stops at one that begins with a digit."""
    headed = [str(page) for page in DOCS.rglob("*.md") if re.search(r"^#+ \d", page.read_text(), re.MULTILINE)]
    assert headed == []


def shell_blocks(page: Path) -> list[str]:
    return re.findall(r"^```sh\n(.*?)\n```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_last_command_of_the_readme_is_the_one_that_continuous_integration_runs() -> None:
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == shell_blocks(ROOT / "README.md")[-1]


def test_the_readme_is_in_the_order_in_which_a_stranger_asks() -> None:
    readme = (ROOT / "README.md").read_text()
    parts = ["Coding agents work", f"({(DOCS / 'images' / MOVING).relative_to(ROOT)}.svg)"]
    parts += ["\n## Install\n", "\n## Connect your agent\n", "\n## Answer\n"]
    places = [readme.index(part) for part in parts]
    assert places == sorted(places)
    assert readme.index("](docs/images/") < places[2], "a still picture stands before the moving one"
    assert re.findall(r"^## .*", readme, re.MULTILINE)[:3] == [part.strip() for part in parts[2:]]


def test_the_site_has_a_search() -> None:
    assert "\nplugins:\n  - search\n" in SITE.read_text()


HANDS_ON = [ROOT / "README.md", *sorted((DOCS / "how-to").rglob("*.md")), DOCS / "tutorial/first-approval.md"]


@pytest.mark.parametrize("page", HANDS_ON, ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_ours_and_need_no_python_of_their_own(page: Path) -> None:
    """What a tool's installer put somewhere is in no environment that a shell has."""
    parsers = {"agent-intercom": main.parser(), "agent-intercom-ctl": ctl.parser()}
    consoles = re.findall(r"^```console\n(.*?)\n```$", page.read_text(), re.MULTILINE | re.DOTALL)
    shown = [line.removeprefix("$ ") for each in consoles for line in each.splitlines() if line.startswith("$ ")]
    for line in "\n".join([*shell_blocks(page), *shown]).replace("\\\n", " ").splitlines():
        if ".venv/bin" in line:
            # The same line makes it.
            assert line.startswith("python3 -m venv .venv && .venv/bin/pip install -q ")
            continue
        assert line.split(" ")[0] not in ("pip", "pip3", "python") or line.startswith("python3 -m venv "), line
        program, *words = shlex.split(re.split(" [|>] ", line)[0].removesuffix(" &"), comments=True) or [""]
        # Without a command, ctl opens the inbox.
        if program in parsers and words not in ([], ["--version"]):
            parsers[program].parse_args(ctl.hoist(words) if program.endswith("-ctl") else words)
