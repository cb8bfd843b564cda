"""What a client's page shows is what init prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from intercom.cli import init_clients, main
from intercom.cli.init_clients import CLIENTS, SERVER_NAME
from tests.docs.generated import DOCS, PROGRAM


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def command(_config: Path | None, *, shared: bool) -> list[str]:
        return [SERVER_NAME if shared else PROGRAM]

    monkeypatch.setattr("intercom.cli.init.command", command)
    return tmp_path


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("name", CLIENTS)
def test_the_entries_of_a_page_are_what_init_prints(home: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "how-to/clients" / f"{name}.md").read_text()
    made = page[page.index("<!-- made") : page.index("<!-- end -->")]
    stdio, http = re.findall(r"```(?:json|toml)\n(.*?)```", made, re.DOTALL)
    assert main.main(["init", "--client", name, "--no-hooks"]) == 0
    assert indented(stdio) in capsys.readouterr().out
    assert main.main(["init", "--client", name, "--no-hooks", "--http", "3000"]) == 0
    printed = re.sub(r"(?<=-)[0-9a-f]{16}", "0123456789abcdef", capsys.readouterr().out)
    assert indented(http) in printed


def test_every_client_has_a_page() -> None:
    assert {file.stem for file in (DOCS / "how-to/clients").glob("*.md")} == set(init_clients.CLIENTS)
