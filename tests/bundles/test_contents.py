"""What the bundles and links have in them."""

from __future__ import annotations

import io
import json
import re
import zipfile
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from intercom._version import __version__
from intercom.agents.clients import CLIENTS
from intercom.cli.init_clients import entry_file
from tests.bundles import __main__ as bundles
from tests.bundles import contents

NAME = "agent-intercom"


def read(files: contents.Files, name: str) -> Any:
    return json.loads(files[name])


def test_the_registry_can_prove_that_the_package_is_ours() -> None:
    said: Any = contents.server_json()
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", said["name"])
    # The registry looks for this in the description on PyPI, which is the README.
    assert f"mcp-name: {said['name']} " in (contents.ROOT / "README.md").read_text()
    assert 0 < len(said["description"]) <= contents.DESCRIPTION_LIMIT
    (package,) = said["packages"]
    assert (package["identifier"], package["version"], said["version"]) == ("agent-intercom", __version__, __version__)


def test_a_release_under_a_name_that_the_registry_would_refuse_is_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(bundles, "OUT", tmp_path / "bundles")
    release = ["--release", "https://example.com/v1", "--only-build"]
    for words, says in ((release, "placeholder"), ([*release, "--namespace", "io.github.kim"], "README.md")):
        monkeypatch.setattr("sys.argv", ["bundles", *words])
        with pytest.raises(SystemExit) as left:
            bundles.main()
        assert left.value.code == 2
        assert says in capsys.readouterr().err
        assert not (tmp_path / "bundles").exists()
    readme = (contents.ROOT / "README.md").read_text().replace(contents.NAMESPACE, "io.github.kim")
    (tmp_path / "README.md").write_text(readme)
    monkeypatch.setattr(contents, "ROOT", tmp_path)
    assert contents.fault_of_release("io.github.kim") is None


def test_a_published_bundle_is_named_with_its_digest() -> None:
    said: Any = contents.server_json("io.github.kim", ("https://example.com/a.mcpb", "0" * 64))
    assert said["name"] == "io.github.kim/agent-intercom"
    assert said["packages"][1]["fileSha256"] == "0" * 64


def test_the_mcp_bundle_has_all_that_an_installation_needs() -> None:
    files = contents.mcpb_files()
    manifest = read(files, "manifest.json")
    assert manifest["server"]["entry_point"] in files
    assert {"setup.cfg", "pyproject.toml", "README.md", "LICENSE", "actors/py.typed"} <= files.keys()
    assert "intercom/agents/handshake_and_lists.json" in files
    installed = {path.relative_to(contents.ROOT).as_posix() for path in (contents.ROOT / "intercom").rglob("*.py")}
    assert installed <= files.keys()
    assert not [name for name in files if name.startswith(("/", "tests/")) or ".." in name or "__pycache__" in name]
    # Its host runs our code from the bundle: no index is asked for a package by our name.
    assert manifest["server"]["mcp_config"]["args"][:4] == ["tool", "run", "--from", "${__dirname}"]
    assert manifest["version"] == __version__


def test_the_same_files_give_the_same_archive() -> None:
    files = {"b.txt": b"b", "a/c.txt": b"c"}
    made = contents.archive(files)
    assert made == contents.archive(dict(reversed(files.items())))
    with zipfile.ZipFile(io.BytesIO(made)) as archived:
        assert {name: archived.read(name) for name in archived.namelist()} == files


def test_the_plugin_starts_what_init_writes(tmp_path: Path) -> None:
    files = contents.plugin_files()
    written = entry_file(CLIENTS["claude-code"], tmp_path, None, None).entry
    # `init` may have found the program elsewhere than on the PATH.
    assert read(files, "agent-intercom/.mcp.json") == {"mcpServers": {"agent-intercom": {**written, "command": NAME}}}
    (listed,) = read(files, ".claude-plugin/marketplace.json")["plugins"]
    assert f"{listed['source'].removeprefix('./')}/.claude-plugin/plugin.json" in files


def test_the_extension_has_the_file_that_it_names() -> None:
    files = contents.extension_files()
    extension = read(files, "gemini-extension.json")
    assert b"mark the results of all tools as untrusted" in files[extension["contextFileName"]]
    assert extension["mcpServers"]["agent-intercom"]["timeout"] == 86_400_000


def test_the_links_carry_the_clients_own_entries() -> None:
    scheme, _, said = contents.vscode_link().partition("?")
    assert scheme == "vscode:mcp/install"
    assert json.loads(unquote(said)) == {"name": "agent-intercom", **contents.entry("vscode")}
    asked = parse_qs(urlsplit(contents.cursor_link()).query)
    assert asked["name"] == ["agent-intercom"]
    assert json.loads(b64decode(asked["config"][0])) == contents.entry("cursor")


@pytest.mark.parametrize("made", [contents.plugin_files, contents.extension_files], ids=["plugin", "extension"])
def test_nothing_of_this_machine_is_in_them(made: Any) -> None:
    for name, data in made().items():
        assert str(Path.home()).encode() not in data, name
        assert str(contents.ROOT).encode() not in data, name
