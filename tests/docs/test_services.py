"""The examples that other programs read are such as those read, and stand on their pages as they are."""

from __future__ import annotations

import configparser
import os
import plistlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from intercom.local.daemon import server_environment
from tests.docs.generated import DOCS, ROOT

UNIT = ROOT / "examples/service/agent-intercom.service"
PLIST = ROOT / "examples/service/agent-intercom.plist"


@pytest.mark.parametrize(
    ("page", "example", "language"),
    [
        ("run-as-a-service.md", "service/agent-intercom.service", "ini"),
        ("run-as-a-service.md", "service/agent-intercom.plist", "xml"),
        ("reverse-proxy.md", "proxy/Caddyfile", ""),
        ("reverse-proxy.md", "proxy/nginx.conf", "nginx"),
        ("watch-with-prometheus.md", "prometheus/prometheus.yml", "yaml"),
        ("watch-with-prometheus.md", "prometheus/intercom.rules.yml", "yaml"),
    ],
)
def test_a_page_shows_its_example_as_it_is(page: str, example: str, language: str) -> None:
    shown = f"```{language}\n{(ROOT / 'examples' / example).read_text()}```\n"
    assert shown in (DOCS / "how-to" / page).read_text()


def read_unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(UNIT.read_text())
    return unit


def test_the_unit_starts_a_server_whose_files_are_private() -> None:
    unit = read_unit()
    assert unit["Service"]["ExecStart"].endswith("/agent-intercom serve --replace")
    assert unit["Service"]["UMask"] == "0077"
    assert unit["Service"]["Environment"] == f"GLIBC_TUNABLES={server_environment({})['GLIBC_TUNABLES']}"


def test_the_unit_is_one_that_systemd_reads(tmp_path: Path) -> None:
    unit = read_unit()
    # As systemd.unit(5), systemd.service(5), systemd.exec(5) and systemd.kill(5) have them.
    assert {section: set(unit[section]) for section in unit.sections()} == {
        "Unit": {"Description"},
        "Service": {"Environment", "ExecStart", "Restart", "RestartSec", "UMask", "KillMode"},
        "Install": {"WantedBy"},
    }
    assert (unit["Service"]["Restart"], unit["Service"]["KillMode"]) == ("always", "process")
    assert unit["Service"]["RestartSec"].isdecimal()
    if shutil.which("systemd-analyze") is not None:
        verify_with_systemd(tmp_path, unit)


def verify_with_systemd(directory: Path, unit: configparser.ConfigParser) -> None:
    # It looks for the program, which is not installed where this runs.
    here = directory / UNIT.name
    here.write_text(UNIT.read_text().replace(unit["Service"]["ExecStart"], "/bin/sh"))
    command = ["systemd-analyze", "--user", "verify", str(here)]
    environ = os.environ | {"XDG_RUNTIME_DIR": str(directory), "SYSTEMD_LOG_LEVEL": "warning"}
    said = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30)
    # What it does not understand it ignores, and says so.
    assert said.returncode == 0, said.stderr
    assert UNIT.name not in said.stderr


def test_the_property_list_is_one_that_launchd_reads() -> None:
    found: dict[str, Any] = plistlib.loads(PLIST.read_bytes())
    assert found["Label"] == PLIST.stem
    assert found["ProgramArguments"][1:] == ["serve", "--replace"]
    assert found["Umask"] == 0o77
    assert found["RunAtLoad"] is found["KeepAlive"] is True
    assert all(Path(each).is_absolute() for each in (found["ProgramArguments"][0], found["StandardErrorPath"]))
