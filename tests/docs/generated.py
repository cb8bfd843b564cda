"""The parts of the reference that are made from the code, so that neither can change without the other.

`python -m tests.docs` writes them into the pages, between the marks; the tests only compare.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio
from prometheus_client import CollectorRegistry, Counter, Histogram

from intercom.agents import argument_schemas, prompts, resources
from intercom.agents.clients import CLIENTS
from intercom.agents.clients.client import SERVER_NAME
from intercom.cli import ctl, main
from intercom.cli.init_clients import EntryFile, snippet
from intercom.gateway import downstream_file, json_settings
from intercom.model.card import ANSWERED
from intercom.model.config_tables import Table, tables
from intercom.model.web_role import WebRole
from intercom.operators.commands.command import Access
from intercom.operators.commands.command_table import COMMANDS, FIELDS
from intercom.operators.metrics import Counted, families, present
from intercom.operators.slack.buttons import possible
from intercom.operators.slack.commands import runner
from intercom.operators.slack.commands.slash_command_table import TITLES
from intercom.operators.web import api as web
from intercom.operators.web.sign_in import may_use
from intercom.rooms.instructions import agents_md
from intercom.rooms.tools import room_tool_table as room_table
from intercom.rooms.tools.tool import RoomTool
from intercom.sessions.tools.tool_table import TOOLS
from tests.bundles import contents as bundles
from tests.operators.metrics.moment import SOURCES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BEGIN, END = "<!-- made from the code: python -m tests.docs -->", "<!-- end -->"
#: The same in the site's configuration.
SITE = ROOT / "properdocs.yml"
SITE_BEGIN, SITE_END = "# made from the code: python -m tests.docs", "# end"


def settings() -> str:
    """Every setting, by table."""
    return "\n".join(line for table in tables() for line in _setting_table(table))


def _setting_table(table: Table) -> Iterator[str]:
    yield f"## `[{table.name}]`" if table.name else "## Top of the file"
    yield f"\n{table.doc}\n"
    if table.settings:
        yield "| setting | value | default | what it does |"
        yield "|---|---|---|---|"
    for each in table.settings:
        kind = each.kind.replace('"', "`")
        default = f"`{each.default}`" if each.default else ""
        yield f"| `{each.name}` | {kind} | {default} | {each.doc} |"
    yield ""


def gateway_files() -> str:
    """Every key of a downstream's file, by table."""
    whole = downstream_file._DOWNSTREAM
    named = {"The file of a server": whole, **{f"`{name}`": table for name, table in whole.below.items()}}
    return "\n".join(line for title, table in named.items() for line in _key_table(title, table))


def _key_table(title: str, table: json_settings.Table) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| key | default | what it does |"
    yield "|---|---|---|"
    written = {each.name: _default_of(each) for each in attrs.fields(table.kind)}
    for key in table.keys:
        default = written.get(key.attribute)
        shown = "needed" if key.required else "" if default in (None, "") else f"`{json.dumps(key.write(default))}`"
        yield f"| `{key.name}` | {shown if shown != '`{}`' else ''} | {key.doc} |"
    yield ""


def _default_of(attribute: attrs.Attribute[object]) -> object:
    default: object = attribute.default
    if hasattr(default, "factory"):
        default = default.factory()
    return None if default is attrs.NOTHING else default


def commands(parser: argparse.ArgumentParser, where: str) -> str:
    """Every command of a program, with its arguments; `where` says where the program's own options stand."""
    lines = [f"Options, {where}:", "", *_arguments(parser), ""]
    for words, command in subcommands(parser):
        lines += [f"## `{' '.join([*words, *_shape(command, parser)])}`", "", _sentence(command.description or ""), ""]
        lines += [each for part in (_arguments(command, parser), _examples(command)) if part for each in (*part, "")]
    return "\n".join(lines)


def senders() -> str:
    """Who may send which command to the server, and which commands take a field."""
    typed = {row.name: " ".join(words) for words, row in ctl.TYPED.items()}
    rows = [*COMMANDS.values()]
    found = {
        "every process of yours: it only shows something": [row for row in rows if not row.acts],
        "a person, though it only shows something": [row for row in rows if row.acts and row.only_shows],
        "a person": [row for row in rows if row.access is Access.OPERATOR and not row.only_shows],
        "a person, who signs it if there is an operator key": [
            row for row in rows if row.access in (Access.SIGNED, Access.SIGNED_CARD)
        ],
    }
    lines = ["## Who may send a command", "", "| who | commands |", "|---|---|"]
    for who, of in found.items():
        lines.append(f"| {who} | {', '.join(f'`{typed.get(row.name, row.name)}`' for row in of)} |")
    lines += ["", "## Fields of a request", "", "| field | what it holds | commands |", "|---|---|---|"]
    for name, kind in FIELDS.items():
        # Two options of ctl may set one field; the first one has its choices.
        takes = {row.name: each.choices for row in rows for each in reversed(row.arguments) if each.wire == name}
        words = dict.fromkeys(word for choices in takes.values() for word in choices)
        holds = ", ".join(f"`{word}`" for word in words) if all(takes.values()) else kind.value
        lines.append(f"| `{name}` | {holds} | {', '.join(f'`{each}`' for each in takes)} |")
    return "\n".join(lines)


def _examples(command: argparse.ArgumentParser) -> list[str]:
    """The lines of a command's help below `examples:`."""
    _, _, typed = (command.epilog or "").partition("examples:\n")
    return ["```sh", *(line.strip() for line in typed.splitlines()), "```"] if typed else []


def subcommands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every command of a program that is carried out, with its words; no alias and no group."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            said = {each.dest: each.help for each in action._choices_actions}
            for name, below in action.choices.items():
                if name not in said:
                    # An alias.
                    continue
                below.description = below.description or said.get(name)
                if not any(isinstance(each, argparse._SubParsersAction) for each in below._actions):
                    yield (*words, name), below
                yield from subcommands(below, (*words, name))


def _shape(parser: argparse.ArgumentParser, top: argparse.ArgumentParser) -> list[str]:
    shape = []
    for action in _own(parser, top):
        values = " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
        name = "|".join(action.choices) if action.choices else str(values or action.dest.upper())
        if action.option_strings:
            shape.append(f"[{action.option_strings[-1]}{'' if action.nargs == 0 else f' {name}'}]")
        else:
            shape.append({"?": f"[{name}]", "*": f"[{name}...]", "+": f"{name}..."}.get(str(action.nargs), name))
    return shape


def _own(parser: argparse.ArgumentParser, top: argparse.ArgumentParser | None = None) -> list[argparse.Action]:
    """The arguments of a command, less those hidden and those of the whole program that mean the same there."""
    known = {(each.dest, each.help) for each in top._actions} if top else set()
    return [
        each
        for each in parser._actions
        if each.dest != "help" and each.help is not argparse.SUPPRESS and (each.dest, each.help) not in known
    ]


def _arguments(parser: argparse.ArgumentParser, top: argparse.ArgumentParser | None = None) -> list[str]:
    told = [each for each in _own(parser, top) if each.help]
    told = [each for each in told if not isinstance(each, argparse._SubParsersAction)]
    names = [each.option_strings[-1] if each.option_strings else str(each.metavar or each.dest) for each in told]
    return [f"- `{name}`: {each.help}" for name, each in zip(names, told, strict=True)]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def protocols() -> list[Path]:
    """The modules that hold nothing but messages."""
    found = {*(ROOT / "intercom").rglob("messages.py"), *(ROOT / "intercom").rglob("*_messages.py")}
    return sorted(found)


def messages() -> str:
    """Every message of the actors, from the source: module by module, as its docstrings tell it."""
    lines = []
    for file in protocols():
        module = ast.parse(file.read_text())
        whole = file.parent if file.stem == "messages" else file.with_suffix("")
        lines += [f"## `{'.'.join(whole.relative_to(ROOT).parts)}`", "", _flowing(ast.get_docstring(module)), ""]
        for each in module.body:
            if isinstance(each, ast.ClassDef):
                lines += _message(each)
    return "\n".join(lines)


def _message(node: ast.ClassDef) -> list[str]:
    bases = [ast.unparse(base) for base in node.bases]
    asked = next((base for base in bases if base.startswith("Request[")), None)
    way = f"asked, answered with `{asked[8:-1]}`" if asked else "enumeration" if "StrEnum" in bases else ""
    lines = [f"### `{node.name}`", ""]
    if said := "; ".join(part for part in (way,) if part):
        lines += [f"*{said}*", ""]
    lines += [_flowing(ast.get_docstring(node)), ""]
    for each in node.body:
        if isinstance(each, ast.AnnAssign):
            value = f" = {ast.unparse(each.value)}" if each.value is not None else ""
            lines.append(f"- `{ast.unparse(each.target)}: {ast.unparse(each.annotation)}{value}`")
        elif isinstance(each, ast.Assign):
            lines.append(f"- `{ast.unparse(each)}`")
    return [*lines, ""]


def tools() -> str:
    """What may be attached to any answer, and every tool as agents see it: its arguments, the fields of its answer."""
    lines = ["## Attached to any answer", "", *_properties(argument_schemas.ATTACHED), ""]
    for tool in TOOLS:
        hints = [name.replace("_", " ") for name, holds in attrs.asdict(tool.hints).items() if holds]
        lines += [f"## `{tool.name}`", "", _flowing(tool.description), ""]
        task = " It can be [called as a task](clients.md#tasks)." if tool.offers_tasks else ""
        older = f"Older name: `{tool.legacy_name}`. " if tool.legacy_name else ""
        lines += [f"{older}Hints: {', '.join(hints) or 'none'}.{task}", ""]
        arguments, answer = argument_schemas.of(tool.takes), argument_schemas.of_answer(tool.result)["properties"]
        needed = arguments.get("required", ())
        lines += ["Takes:", "", *_properties(arguments["properties"], needed), "", "Answers:", ""]
        lines += [
            *_properties({name: each for name, each in answer.items() if name not in argument_schemas.ATTACHED}),
            "",
        ]
    return "\n".join(lines)


def room_tools() -> str:
    """Every tool of rooms as teams see it, and what plain HTTP has besides."""
    lines = []
    for tool in room_table.OVER_HTTP:
        lines += [f"## `{tool.name}`", "", _flowing(tool.description), ""]
        lines += [f"`{tool.route.method} {tool.route.path}`{_room_note(tool)}", ""]
        arguments = argument_schemas.of(tool.takes)
        lines += ["Takes:", "", *_properties(arguments["properties"], arguments.get("required", ())), ""]
        if tool.result is not None:
            lines += ["Answers:", "", *_properties(argument_schemas.of_result(tool.result)["properties"]), ""]
    return "\n".join(lines)


def _room_note(tool: RoomTool) -> str:
    return "" if tool in room_table.TOOLS else ", over plain HTTP only"


def _properties(properties: dict[str, Any], needed: Collection[str] = (), indent: str = "") -> list[str]:
    lines = []
    for name, each in properties.items():
        must = ", required" if name in needed else ""
        lines.append(f"{indent}- `{name}` ({_kind(each)}{must}): {_flowing(each['description'])}")
        inner = each if "properties" in each else each.get("items", {})
        lines += _properties(inner["properties"], (), f"{indent}  ") if "properties" in inner else []
    return lines or ["nothing"]


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"] if each is not None)
    kind = schema.get("type") or [each.get("type", "object") for each in schema.get("anyOf", [])] or "anything"
    return kind if isinstance(kind, str) else " or ".join(each for each in kind if each != "null")


def _flowing(text: str | None) -> str:
    """Text as it stands, with the empty lines around a list that Markdown wants."""
    lines: list[str] = []
    for line in inspect.cleandoc(text or "").strip().splitlines():
        if lines and lines[-1] and lines[-1].startswith("- ") != line.startswith("- ") and not line.startswith(" "):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


_REPLIES = (
    "A reply to a card, or in its session's thread while one card is open there, begins with one of these words. What"
    " follows `:` is the text that the agent gets. If several cards are open in the thread, the reply begins with the"
    " card's id. To an agent that stands by, any other text is what it should do next."
)


def slack_commands() -> str:
    """What can be replied to each kind of card, and every command of Slack's slash command, as their tables have it."""
    lines = ["## Replies to a card", "", _REPLIES, "", "| card | you can reply |", "|---|---|"]
    lines += [*(f"| {kind.value} | {possible(kind)} |" for kind in ANSWERED), ""]
    for category, entries in runner.build({}, runner.Runs()).categories().items():
        lines += [f"## {TITLES[category]}", ""]
        for entry in entries:
            arguments = [f"- `{shape}`: {doc}" for shape, doc in entry.arguments]
            lines += [f"### `{entry.usage}`", "", entry.details, ""]
            lines += [*arguments, ""] if arguments else []
            lines += [f"For example `{entry.example}`.", ""]
    return "\n".join(lines)


def metrics() -> str:
    """Every metric, from a registry that counts and a moment that has something of everything."""
    counts = CollectorRegistry()
    Counted(counts)
    rows = {}
    for name, metric in counts._names_to_collectors.items():
        if isinstance(metric, Counter | Histogram) and name == metric._name:
            rows[name] = metric._type, metric._labelnames, metric._documentation
    for each in families(trio.run(present, SOURCES)):
        rows[each.name] = each.type, each._labelnames, each.documentation
    lines = ["| metric | type | labels | what it tells |", "|---|---|---|---|"]
    for name, (kind, labels, words) in sorted(rows.items()):
        shown = f"{name}_total" if kind == "counter" else name
        lines.append(f"| `{shown}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {words} |")
    return "\n".join(lines)


#: The parts of the documentation, in the order of need, with their pages in groups: the order of the first page and of
#: the site. A new page is added to a group here.
PARTS: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "tutorial": ("Tutorial", {"": ("first-approval", "supervised-actors")}),
    "how-to": (
        "How-to",
        {
            "Connect": (
                "connect-an-agent",
                *(f"clients/{name}" for name in sorted(CLIENTS)),
                "install-from-a-bundle",
                "connect-over-http",
                "instruct-agents",
                "enforce-with-hooks",
            ),
            "Answer": (
                "inbox",
                "open-the-page",
                "web",
                "share-the-page",
                "use-the-api",
                "answer-with-changes",
                "slack",
                "answer-in-the-client",
                "permit-in-advance",
                "write-a-policy",
            ),
            "Lead agents": ("start-agents", "steer-agents", "checkpoints"),
            "Protect": ("operator-key", "verify-the-audit-log"),
            "Run the server": ("run-as-a-service", "reverse-proxy", "watch-with-prometheus", "show-the-demo"),
            "Other MCP servers": ("gateway",),
            "Teams of agents": ("rooms", "host-rooms"),
            "Write programs": ("frameworks", "embed", "tune-actors"),
        },
    ),
    "reference": (
        "Reference",
        {
            "For people": (*("cli", "ctl", "slack-commands", "configuration", "policy", "gateway-files", "errors"),),
            "For agents": ("tools", "prompts", "clients", "started-agents"),
            "Rooms": ("rooms", "rooms-instructions", "rooms-database"),
            "Inside": ("http", "web-api", "database", "messages", "metrics", "shim-wire", "actor-semantics"),
        },
    ),
    "explanation": (
        "Explanation",
        {
            "": ("architecture", "security", "slack", "rooms", "scaling-rooms", "chaos", "tested", "performance"),
        },
    ),
}
DECISIONS = DOCS / "explanation" / "decisions"


#: What stands for the user's own in the entries shown: where the program is, and a server's address with its key.
PROGRAM = "/home/me/.local/bin/agent-intercom"
ADDRESS = "http://127.0.0.1:3000/mcp?agent={}-0123456789abcdef"
#: The same for a server's public URL.
ROOMS_ADDRESS = "https://rooms.example.org"


def entries(name: str) -> str:
    """What `init` writes for a client, over stdio and over HTTP."""
    client = CLIENTS[name]
    entry = client.entry
    stdio = entry.stdio([SERVER_NAME if entry.file.is_in_project else PROGRAM])
    web = entry.http(ADDRESS.format(name), True)
    lines = ["Over stdio:", "", *_fenced(EntryFile(client, Path(), stdio)), "", entry.note, ""]
    lines += ["Over HTTP:", "", *_fenced(EntryFile(client, Path(), web, inputs=entry.inputs)), ""]
    return "\n".join([*lines, f"{entry.token_note} {entry.note}"])


def _fenced(file: EntryFile) -> list[str]:
    return [f"```{'toml' if file.location.is_toml else 'json'}", *snippet(file).strip().splitlines(), "```"]


def contents() -> str:
    """Every page but the decisions, which have a list of their own."""
    lines = []
    for part, (title, groups) in PARTS.items():
        lines += [f"## {title}", ""]
        for group, names in groups.items():
            lines += [f"### {group}", ""] if group else []
            lines += [*_listed(DOCS, [DOCS / part / f"{name}.md" for name in names]), ""]
    lines[-1:] = ["- [Decisions](explanation/decisions/index.md): what was chosen, against what, and why"]
    return "\n".join(lines)


def decisions() -> str:
    """Every decision note."""
    return "\n".join(_listed(DECISIONS, _decision_pages()))


def _decision_pages() -> list[Path]:
    return [page for page in sorted(DECISIONS.glob("*.md")) if page.name != "index.md"]


def _listed(home: Path, pages: list[Path]) -> list[str]:
    titles = [page.read_text().partition("\n")[0].removeprefix("# ") for page in pages]
    return [f"- [{title}]({page.relative_to(home)})" for page, title in zip(pages, titles, strict=True)]


def navigation() -> str:
    """The pages as the site's configuration names them; a page's title is its first line."""
    lines = []
    for part, (title, groups) in PARTS.items():
        lines.append(f"  - {title}:")
        for group, names in groups.items():
            indent = "      "
            if group:
                lines.append(f"{indent}- {group}:")
                indent += "    "
            lines += [f"{indent}- {part}/{name}.md" for name in names]
    pages = [DECISIONS / "index.md", *_decision_pages()]
    lines.append("      - Decisions:")
    lines += [f"          - {page.relative_to(DOCS)}" for page in pages]
    return "\n".join(lines)


def install_links() -> str:
    """The links by which clients offer to install the server."""
    links = {"VS Code": bundles.vscode_link(), "Cursor": bundles.cursor_link()}
    return "\n".join(line for name, link in links.items() for line in (f"{name}:", "", "```text", link, "```", ""))


def prompts_and_resources() -> str:
    """Every prompt of the MCP server, and every resource."""
    lines = ["## Prompts", "", "| prompt | shown as | argument | what it does |", "|---|---|---|---|"]
    for prompt in prompts.LISTED:
        takes = ", ".join(
            f"`{each.name}`" + ("" if each.required else " (optional)") for each in prompt.arguments or ()
        )
        lines.append(f"| `{prompt.name}` | {prompt.title} | {takes} | {prompt.description} |")
    lines += ["", "## Resources", "", "| address | shown as | what it has |", "|---|---|---|"]
    lines += [f"| `{each.uri}` | {each.title} | {each.description} |" for each in resources.LISTED]
    channel = resources.TEMPLATE
    lines.append(f"| `{channel.uri_template}` | {channel.title} | {channel.description} |")
    return "\n".join(lines)


#: The pages with such a part, and what makes it.
def web_api() -> str:
    """The statuses of the page's API, and every command with its fields."""
    lines = ["## Statuses", "", "| status | when |", "|---|---|"]
    lines += [f"| {status} | {said} |" for status, (_, said) in web.FAILURES.items()]
    lines += ["", "## All commands", "", "| command | for | what it does | fields |", "|---|---|---|---|"]
    for row in COMMANDS.values():
        if may_use(WebRole.ADMIN, row):
            who = next(role for role in WebRole if may_use(role, row))
            named = (f"`{each.name}`" + ("" if each.is_needed else " (optional)") for each in web.fields_of(row))
            lines.append(f"| `{row.name}` | {who.value} | {row.help} | {', '.join(named)} |")
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {
    **{f"how-to/clients/{name}.md": partial(entries, name) for name in CLIENTS},
    "reference/rooms-instructions.md": lambda: agents_md(ROOMS_ADDRESS, secret=False),
    "index.md": contents,
    "explanation/decisions/index.md": decisions,
    "reference/configuration.md": settings,
    "reference/gateway-files.md": gateway_files,
    "reference/cli.md": lambda: commands(
        main.parser(), "before the command (--config, --ipc-name and --log-format may also follow it)"
    ),
    "reference/ctl.md": lambda: f"{commands(ctl.parser(), 'before or after the command')}\n{senders()}",
    "reference/messages.md": messages,
    "reference/metrics.md": metrics,
    "reference/rooms.md": room_tools,
    "reference/slack-commands.md": slack_commands,
    "reference/web-api.md": web_api,
    "how-to/install-from-a-bundle.md": install_links,
    "reference/prompts.md": prompts_and_resources,
    "reference/tools.md": tools,
}


def site_with() -> str:
    """The text of the site's configuration as it should be."""
    made = f"{SITE_BEGIN}\n{navigation()}\n{SITE_END}"
    return re.sub(f"{SITE_BEGIN}.*?{SITE_END}", lambda _: made, SITE.read_text(), count=1, flags=re.DOTALL)


def page_with(name: str) -> str:
    """The text of a page as it should be: its own words, and between the marks what the code says today."""
    text = (DOCS / name).read_text()
    made = f"{BEGIN}\n\n{PAGES[name]().strip()}\n\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: made, text, count=1, flags=re.DOTALL)
