"""`agent-intercom doctor`: checks everything that Intercom depends on, and says how to fix each fault."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from pathlib import Path

import attrs
from rich.console import Console
from rich.text import Text

from intercom._version import __version__
from intercom.cli import ctl_draw, doctor_client
from intercom.cli.ctl_text import clean
from intercom.cli.doctor_checks import configuration, examine
from intercom.cli.finding import Finding, State
from intercom.cli.init_clients import CLIENTS

_STYLE = {State.OK: "green", State.WARN: "yellow", State.FAULT: "bold red"}
_INDENT = 23


def run(options: argparse.Namespace) -> int:
    """Print one finding after another, or with `--json` one JSON value. Nothing is changed.

    Returns 0 without faults (warnings are allowed), 1 with faults, 2 if the options do not fit together.
    """
    if options.client is not None and options.client not in CLIENTS:
        print(f"no client is called {options.client}: choose from {', '.join(CLIENTS)}", file=sys.stderr)
        return 2
    if options.client is None and options.probe is not None:
        print("--probe needs to know the client: add --client codex, say", file=sys.stderr)
        return 2
    if options.client is None:
        findings = examine(options.config, options.ipc_name, options.workspace, os.getcwd())
    else:
        config, _, findings = configuration(options.config, options.ipc_name)
        project = Path(options.workspace or os.getcwd()).expanduser()
        findings += doctor_client.examine(options.client, config, project, options.probe)
    faults = sum(finding.state is State.FAULT for finding in findings)
    if options.json:
        print(json.dumps({"ok": not faults, "version": __version__, "findings": [attrs.asdict(f) for f in findings]}))
        return 1 if faults else 0
    console = ctl_draw.console()
    for finding in findings:
        _draw(console, finding)
    warnings = sum(finding.state is State.WARN for finding in findings)
    console.print()
    console.print(_summary(faults, warnings))
    return 1 if faults else 0


def _draw(console: Console, finding: Finding) -> None:
    head = Text(f"{finding.state:<6}", _STYLE[finding.state]).append(f" {finding.subject:<16}", "bold")
    lines = _wrapped(console, finding.text)
    console.print(head.append(lines[0]), soft_wrap=True)
    for line in lines[1:]:
        console.print(Text(" " * _INDENT + line), soft_wrap=True)
    for number, line in enumerate(_wrapped(console, finding.advice, 3) if finding.advice else ()):
        arrow = "-> " if number == 0 else "   "
        console.print(Text(" " * _INDENT + arrow + line, "cyan"), soft_wrap=True)


def _wrapped(console: Console, text: str, more: int = 0) -> list[str]:
    width = max(30, console.width - _INDENT - more)
    return [
        line
        for paragraph in clean(text).splitlines() or [""]
        for line in textwrap.wrap(
            paragraph, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        or [""]
    ]


def _summary(faults: int, warnings: int) -> Text:
    if not faults and not warnings:
        return Text("all is well", "green")
    counted = [
        f"{count} {word}{'s' if count > 1 else ''}"
        for count, word in ((faults, "fault"), (warnings, "warning"))
        if count
    ]
    return Text(", ".join(counted), "bold red" if faults else "yellow")
