"""Intercom's own files that `init` writes: the configuration and a project's policy."""

from __future__ import annotations

import json
import os
import re
import textwrap
import tomllib
from pathlib import Path

from attrs import evolve

from intercom.cli import ctl_policy, init_files
from intercom.cli.init_clients import DEFAULT_PORT
from intercom.cli.init_files import Change, backup_name
from intercom.local import config_file
from intercom.local.places import places
from intercom.model.config import Config, Setting, tables
from intercom.model.errors import ConfigError
from intercom.model.policy import POLICY_FILE
from intercom.operators.ctl.client import NoServer, Refusal

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

Slack's tokens are never in this file. 'agent-intercom slack login' keeps them in the keychain; otherwise they come from
SLACK_APP_TOKEN and SLACK_BOT_TOKEN in the server's environment.

After a change, stop the server (the next agent starts it again). 'agent-intercom doctor' checks this file.
"""


def configure(file: Path, root: Path | None, http: int | None, *, write: bool, force: bool) -> tuple[list[str], Config]:
    """Write the configuration `file` if there is none, or again with `force`.

    `root` becomes the default workspace. `http` is the port to open: None for no HTTP, 0 for the configured or the
    default port. An existing file gets the port alone. Without `write` nothing is changed. Returns the lines of the
    report, and the settings. Raises ConfigError and OSError.
    """
    if root in (Path("/"), Path.home().resolve()):
        raise ConfigError(f"{root} cannot be a workspace: give --workspace a project")
    if file.is_dir():
        raise ConfigError(f"{file} is a directory: give --config a file in it")
    real = Path(os.path.realpath(file))
    before = init_files.read(real)
    if force or not (file.exists() or file.is_symlink()):
        port = None if http is None else http or DEFAULT_PORT
        after, settings, verb, what = render(root, port), Config(http_port=port), "write", str(file)
    else:
        settings = config_file.load(file) if http is not None else Config()
        port = http or settings.http_port or DEFAULT_PORT
        if http is None or port == settings.http_port:
            return [f"kept     {file} (--force writes it again)"], settings
        after, settings, verb = with_port(before or "", port), evolve(settings, http_port=port), "set"
        if tomllib.loads(after) != {**tomllib.loads(before or ""), "http_port": port}:
            raise ConfigError(f"{file} cannot be edited safely as it is laid out: set http_port = {port} in it")
        what = f"http_port = {port} in {file} (agent-intercom stop ends a server without it)"
    if not write:
        return [f"would {verb} {what}"], settings
    backup = None if before is None else backup_name(real)
    init_files.commit([Change(real, before, after, 0o600, backup)])
    done = "wrote" if verb == "write" else verb
    return [*([f"backup   {backup}"] if backup is not None else []), f"{done:<8} {what}"], settings


def with_port(text: str, port: int) -> str:
    """Return a configuration file's text with `http_port` set, and everything else as it was.

    Uses the line that `init` wrote, if it is there. Raises `tomllib.TOMLDecodeError` if the text is not TOML.
    """
    tomllib.loads(text)
    line = f"http_port = {port}"
    top, table, rest = text.partition("\n[") if not text.startswith("[") else ("", "", text)
    for pattern in (r"^http_port[ \t]*=.*$", r"^# http_port = .*$"):
        changed, count = re.subn(pattern, line, top, count=1, flags=re.MULTILINE)
        if count:
            return changed + table + rest
    return f"{line}\n{text}"


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


#: It grants reading, and two commands that only show something: this is safe for any project.
STARTER = """\
{
  "$schema": "urn:agent-intercom:workspace-settings:1",
  "enabled": true,
  "commands": ["git status", "git diff --stat"],
  "tools": [],
  "file_patterns": {
    "write": [],
    "read": ["**"]
  },
  "risk_level_threshold": "low",
  "log_auto_approved": true,
  "summary_interval_seconds": 300
}
"""


def plan_policy(workspace: Path) -> str:
    """Say in one line what would be done."""
    file = workspace / POLICY_FILE
    if file.exists() or file.is_symlink():
        return f"policy   {file} is there: it would be shown, and accepted if you say so"
    return f"policy   {file} would be written, shown, and accepted if you say so"


def write_policy(workspace: Path) -> str | None:
    """Write the policy file if there is none. Returns a line that says so, or None. Raises OSError."""
    file = workspace / POLICY_FILE
    if file.exists() or file.is_symlink():
        return None
    init_files.commit([Change(file, None, STARTER, mode=0o644)])
    return f"wrote    {file}"


def accept_policy(workspace: Path, ipc_name: str) -> tuple[bool, str | None]:
    """Ask the server to accept the policy, like `agent-intercom-ctl policy accept`; it refuses an agent's own
    processes. Returns whether that was done or can wait, and a message if there is one."""
    by_hand = f"agent-intercom-ctl policy accept {workspace}"
    try:
        done = ctl_policy.run(places(ipc_name), "accept", {"workspace": str(workspace)}, yes=False, as_json=False) == 0
    except NoServer:
        return True, f"the policy is not accepted yet, as no server runs: {by_hand}"
    except Refusal as refusal:
        if refusal.code == "not_found":
            return True, f"policy   {refusal}"
        return False, f"the policy was not accepted: {refusal}"
    return True, None if done else f"the policy was not accepted; when you want to: {by_hand}"
