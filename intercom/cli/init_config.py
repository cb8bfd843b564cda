"""The configuration file that `init` writes: every setting with its description, commented out at its default."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from intercom.model.settings import Setting, tables

#: Examples for settings whose default is to have no value.
EXAMPLES = {
    "default_workspace_root": '"~/projects/mine"',
    "host_cli": '"claude"',
    "http_port": "3000",
    "http_allowed_hosts": '["intercom.example.com"]',
    "http_allowed_origins": '["https://intercom.example.com"]',
    "database.path": '"data/agent-rc.db"',
    "slack.channel_id": '"C0123456789"',
    "slack.workspace_channels": '{ "~/projects/web" = "C0123456789" }',
    "slack.proxy": '"http://proxy.example.org:3128"',
    "slack.ca_file": '"/etc/ssl/certs/proxy.pem"',
    "slack.authorized_user_ids": '["U0123456789"]',
    "timeouts.prompt_by_type": '{ error_recovery = "stop" }',
    'clients."NAME".slice_seconds': "240",
    "logging.file": '"intercom.log"',
}
#: Example entries for the tables whose keys the user chooses.
OWN_NAMES = {"commands": ['status = "git status"'], "clients": ['[clients."codex"]']}

HEAD = """\
Intercom's configuration. Everything here is optional: a line that is commented out shows the default, or an example
where the default is to have none. Relative paths count from this file's directory.

Slack's tokens never stand here. 'agent-intercom slack login' keeps them in the keychain; else they come from
SLACK_APP_TOKEN and SLACK_BOT_TOKEN in the server's environment.

After a change, stop the server (the next agent starts it again). 'agent-intercom doctor' checks this file.
"""


def render(default_workspace_root: Path | None = None, http_port: int | None = None) -> str:
    """Return the text of a configuration file in which only the given settings are set."""
    given: dict[str, object] = {} if http_port is None else {"http_port": http_port}
    if default_workspace_root is not None:
        given["default_workspace_root"] = str(default_workspace_root)
    lines = _comment(HEAD)
    for table in tables():
        lines.append("")
        if table.name:
            lines += _comment(table.doc)
        if table.name and not table.free:
            lines.append(f"[{table.name}]")
        for own in OWN_NAMES.get(table.name, ()):
            if not own.startswith("["):
                lines.append(f"[{table.name}]")
            lines.append(f"# {own}")
        for setting in table.settings:
            lines += ["", *_comment(setting.doc)]
            if not table.name and setting.name in given:
                lines.append(f"{setting.name} = {json.dumps(given[setting.name], ensure_ascii=False)}")
            else:
                lines.append(f"# {setting.name} = {_value(setting)}")
    return "\n".join(lines) + "\n"


def _value(setting: Setting) -> str:
    dotted = f"{setting.table}.{setting.name}".lstrip(".")
    return EXAMPLES.get(dotted) or setting.default or ""


def _comment(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += [f"## {line}" for line in textwrap.wrap(" ".join(paragraph.split()), 116)] + ["##"]
    return lines[:-1]
