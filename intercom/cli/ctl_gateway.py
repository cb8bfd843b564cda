"""The `gateway` commands of ctl: other MCP servers, which agents reach through this one.

Downstreams wrote much of what is shown: all of it is made safe for a terminal.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from intercom.cli.ctl_text import at_words, clean, count, one_line, short
from intercom.local.places import Places
from intercom.model.errors import IntercomError
from intercom.model.gateway_view import (
    BudgetView,
    CallLine,
    CallResult,
    CallTail,
    DownstreamDetail,
    DownstreamList,
    DownstreamStatus,
    DownstreamView,
    EvidenceLine,
    HealthReport,
    HealthStatus,
    LintFinding,
    LintLevel,
    RoleExplanation,
    ToolView,
)
from intercom.model.json_types import Json, JsonObject, part

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PROGRAM: Final = "agent-intercom-ctl gateway"
#: Signs in to a downstream. It is no command of ctl, because the browser must be the person's.
SIGN_IN: Final = "agent-intercom gateway sign-in"
#: Seconds between two requests for more calls.
_PAUSE: Final = 0.5
_INDENT: Final = "    "
#: How many lines of a program's log, and of a tool's description, are shown.
_LOG_LINES: Final = 12
#: The most tools that are named in a line.
_NAMED: Final = 40
#: The exit codes of a test.
EXIT_CODES: Final = {HealthStatus.HEALTHY: 0, HealthStatus.DEGRADED: 1, HealthStatus.UNHEALTHY: 2}

_STATUS_STYLE: Final = {
    DownstreamStatus.READY: "green",
    DownstreamStatus.DEGRADED: "yellow",
    DownstreamStatus.OFFLINE: "red",
}
_HEALTH_STYLE: Final = {
    HealthStatus.HEALTHY: "green",
    HealthStatus.DEGRADED: "yellow",
    HealthStatus.UNHEALTHY: "bold red",
}
#: The status of a call of an agent that has no workspace, and so no session.
_WITHOUT_SESSION: Final = "workspace_refused"
#: The status of a call that a person has rejected.
_REJECTED: Final = "operator_denied"
_EFFECT_STYLE: Final = {"allow": "green", "ask": "yellow", "deny": "dim"}


def gateway(
    where: Places,
    command: str,
    fields: JsonObject,
    *,
    words: Sequence[str] = (),
    config: str | None = None,
    follow: bool = False,
    as_json: bool = False,
) -> int:
    """Run one of the commands. `words` are the arguments of a call as they were typed, `config` is the configuration
    file if it is not the default one.

    Returns the exit code: 0, that of a test, or 1 for a failed call and for files with faults. Raises what `send`
    raises, NoServer only if the files and the database cannot answer in its place.
    """
    from intercom.cli.ctl_sign import send
    from intercom.operators.ctl.client import NoServer, request

    try:
        if command == "gateway-tail":
            return _tail(where, fields, follow=follow, as_json=as_json)
        if command == "gateway-call":
            # Before the person types a PIN for it.
            given = {**{name: fields[name] for name in ("id", "tool")}, **_typed_arguments(words)}
            fields = {**fields, "text": as_typed(words, request(where, "gateway-check", given)["arguments"])}
        data = send(where, command, fields)
    except NoServer:
        # Imported lazily: it takes longer than a whole command.
        from intercom.cli import ctl_gateway_files

        answered = ctl_gateway_files.answer(where, config, command, fields)
        if answered is None:
            raise
        data, said = answered
        print(at_words(said), file=sys.stderr)
        if command == "gateway-tail":
            _print_calls(data, as_json=as_json, is_first=True)
            if follow:
                raise
            return 0
    if as_json:
        found = _exports(data) if command == "gateway-evidence" else []
        # Programs get one object, or a list of several.
        print(json.dumps((found[0] if len(found) == 1 else found) if found else data))
    elif command in ("gateway-enable", "gateway-disable"):
        print(_changed_line(command, data))
    else:
        from intercom.cli import ctl_draw

        DRAWINGS[command](ctl_draw.console(), data, ctl_draw.now())
    if command == "gateway-test":
        return EXIT_CODES[HealthStatus(data["status"])]
    if command == "gateway-call":
        return 1 if data["is_error"] else 0
    if command == "gateway-lint":
        return 1 if any(each["level"] == LintLevel.FAULT for each in data["findings"]) else 0
    return 0


def _typed_arguments(words: Sequence[str]) -> JsonObject:
    """Return the field that has the arguments of a call: JSON as it is, or a list of NAME=VALUE."""
    if not words:
        return {}
    # JSON that the shell has split at its blanks.
    is_object = words[0].lstrip().startswith("{")
    return {"text": " ".join(words) if is_object else json.dumps(list(words))}


def as_typed(words: Sequence[str], arguments: object) -> str:
    """Return the arguments of a call as the server understood them. They are signed, and a program that answers in
    the server's place must not choose them: raises IntercomError if they are not what the person typed, where each
    VALUE is text or JSON."""
    with contextlib.suppress(ValueError, RecursionError):
        made = json.loads(str(arguments))
        if not words or words[0].lstrip().startswith("{"):
            if _exact(made) == _exact(json.loads(" ".join(words) or "{}")):
                return str(arguments)
        elif isinstance(made, dict):
            typed = dict(word.partition("=")[::2] for word in words)
            if made.keys() == typed.keys() and all(_is_value(made[name], typed[name]) for name in made):
                return str(arguments)
    raise IntercomError(
        "the server named other arguments than you typed, so nothing was signed or sent: look which program is at its"
        " socket (agent-intercom doctor)",
        code="record_mismatch",
    )


def _is_value(value: Json, typed: str) -> bool:
    with contextlib.suppress(ValueError, RecursionError):
        if _exact(value) == _exact(json.loads(typed)):
            return True
    return value == typed


def _exact(value: Json) -> str:
    """Return a text that differs where values do, also `1` and `true`."""
    return json.dumps(value, sort_keys=True)


def _exports(data: Json) -> Sequence[JsonObject]:
    """Return the kept results that an answer has in full."""
    found = data.get("exports") if isinstance(data, Mapping) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _changed_line(command: str, data: Mapping[str, Json]) -> str:
    name = one_line(str(data["name"]))
    if command == "gateway-disable":
        return f"disabled {name}: agents that call it are told so; {PROGRAM} enable {name} ends that"
    return f"enabled {name}; {PROGRAM} list shows whether it can be reached"


# --- calls -----------------------------------------------------------------------------------------------------------


def _tail(where: Places, fields: JsonObject, *, follow: bool, as_json: bool) -> int:
    """Print the newest calls; with `follow`, new ones until ^C."""
    from intercom.operators.ctl.client import request

    data = request(where, "gateway-tail", fields)
    is_first = True
    while True:
        tail = _print_calls(data, as_json=as_json, is_first=is_first and not follow)
        if not follow:
            return 0
        if not tail.calls:
            time.sleep(_PAUSE)
        is_first = False
        rest = {name: value for name, value in fields.items() if name != "limit"}
        data = request(where, "gateway-tail", {**rest, "start": tail.end})


def _print_calls(data: Json, *, as_json: bool, is_first: bool) -> CallTail:
    """Print some calls, and return them. If there are none, that is said of the first ones."""
    from intercom.operators.commands.json_forms import read

    tail = read(CallTail, data)
    if as_json and (tail.calls or is_first):
        print(json.dumps(data), flush=True)
    elif not as_json:
        for call in tail.calls:
            print(call_line(call, datetime.now(UTC)))
        if is_first and not tail.calls:
            print("no calls: no agent has called a tool of a server behind the gateway yet")
        sys.stdout.flush()
    return tail


def call_line(call: CallLine, now: datetime | None = None) -> str:
    """Return a call as one line: when, who with which role, what, how it ended, how long it took, and who decided. A
    call of another day than `now` has its date."""
    status = f"{call.status} (cached)" if call.is_cached else call.status
    at, is_today = call.at, now is None or call.at.date() == now.date()
    parts = [
        f"{at:%H:%M:%S}" if is_today else f"{at:%Y-%m-%d %H:%M:%S}",
        f"{_who(call)} ({call.role or 'no role'})",
        f"{call.downstream}.{call.tool}",
        status,
    ]
    if call.seconds is not None and not call.is_cached:
        parts.append(milliseconds(call.seconds))
    if call.decided_by is not None:
        parts.append(f"{'rejected' if call.status == _REJECTED else 'decided'} by {call.decided_by}")
    elif call.request_id is not None:
        parts.append(f"asked in {call.request_id[:8]}")
    if call.is_redacted:
        parts.append("secrets masked")
    line = "  ".join(parts)
    return one_line(f"{line}: {call.error}" if call.error else line)


def _who(call: CallLine) -> str:
    """Return who called: the client, the session as `list` shows it, and the connection's id; or the person."""
    if call.session_id:
        client = f"{call.client}, " if call.client else ""
        return f"{client}session {short(call.session_id)}, agent {short(call.agent)}"
    return f"no session, agent {short(call.agent)}" if call.status == _WITHOUT_SESSION else call.agent


def milliseconds(seconds: float) -> str:
    """Write a duration for people: "0.4 ms", "12 ms", "3.2 s"."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def result_lines(result: Mapping[str, Json]) -> list[str]:
    """Return what a tool's result says, for people: its texts, and a word about all else. Not yet safe to print."""
    lines: list[str] = []
    content = result.get("content")
    for block in content if isinstance(content, list) else []:
        if not isinstance(block, Mapping):
            continue
        kind = str(block.get("type"))
        if kind == "text":
            lines += str(block.get("text", "")).split("\n")
            continue
        resource = block.get("resource")
        inner: Mapping[str, Json] = resource if isinstance(resource, Mapping) else block
        if isinstance(inner.get("text"), str):
            lines += [f"[{kind} {inner.get('uri', '')}]", *str(inner["text"]).split("\n")]
            continue
        data = inner.get("data") or inner.get("blob")
        # Base64 has four characters for three bytes.
        size = f", {count(len(data) * 3 // 4, 'byte')}" if isinstance(data, str) else ""
        what = inner.get("mimeType") or inner.get("uri") or "no type"
        lines.append(f"[{kind}: {what}{size}; --json has it]")
    if not lines and "structuredContent" in result:
        lines = json.dumps(result["structuredContent"], indent=2, ensure_ascii=False).split("\n")
    if result.get("resultType") == "input_required":
        lines.append("[it wants input, which ctl cannot give: let an agent call this tool]")
    return lines


# --- drawing ---------------------------------------------------------------------------------------------------------

_COLUMNS: Final = ("name", "status", "for", "transport", "tools", "calls", "lost", "mean", "")
#: Columns that a narrow terminal has no room for. `show` has them, and the remarks are written below the table.
_LEFT_OUT: Final = ("for", "transport", "")
#: The columns of characters that the whole list needs.
_WIDE: Final = 100


def draw_list(on: Console, data: Json, at: datetime) -> None:
    from rich.text import Text

    from intercom.cli.ctl_table import age, print_table, safe_text
    from intercom.operators.commands.json_forms import read

    whole = read(DownstreamList, data)
    found = whole.downstreams
    for fault in whole.faults:
        line = safe_text("fault   ", "bold red").append(one_line(fault), "not bold default")
        on.print(line, soft_wrap=not on.is_terminal)
    is_narrow = on.is_terminal and on.width < _WIDE
    cells: list[dict[str, Text | str]] = [
        {
            "name": safe_text(one_line(each.name)),
            "status": safe_text(each.status if each.is_enabled else "disabled", _STATUS_STYLE[each.status]),
            "for": age(each.since, at) if whole.is_live else "-",
            "transport": safe_text(each.transport),
            "tools": f"{each.tools}+{len(each.withheld)}" if each.withheld else str(each.tools),
            "calls": str(each.calls),
            "lost": str(each.errors),
            "mean": "-" if each.mean_seconds is None else milliseconds(each.mean_seconds),
            "": safe_text(one_line("; ".join(_remarks(each)))),
        }
        for each in found
    ]
    columns = [each for each in _COLUMNS if not is_narrow or each not in _LEFT_OUT]
    rows = [[row[column] for column in columns] for row in cells]
    print_table(on, columns, rows, "no MCP servers: agent-intercom gateway import moves those that you have here")
    for row in cells if is_narrow else ():
        if row[""]:
            on.print(Text(f"  {row['name']}: {row['']}"))
    if found and whole.is_live:
        note = (
            "calls, and those that got no answer (lost), since the server was started; tail has all, with tools' errors"
        )
        on.print(safe_text(f"  {note}", "dim"), soft_wrap=not on.is_terminal)
    if not whole.is_live:
        return
    failing = [each for each in found if each.is_enabled and each.status is not DownstreamStatus.READY]
    hints = [f"{SIGN_IN} {each.name}" for each in failing if each.needs_sign_in]
    hints += [f"{PROGRAM} test {each.name}" for each in failing if not each.needs_sign_in][:1]
    for hint in hints:
        on.print(safe_text(one_line(f"  {hint}"), "cyan"), soft_wrap=True)


def _remarks(view: DownstreamView) -> Iterable[str]:
    if view.status is not DownstreamStatus.READY:
        # The error has the reason in it, and more.
        is_same = view.is_enabled and view.last_error is not None and view.reason in view.last_error
        said = view.last_error if is_same and view.last_error is not None else view.reason
        said = said.removeprefix("the connection ").removeprefix("could not be made: ")
        # The command has a line of its own.
        yield said.partition(f": run '{SIGN_IN} ")[0] if view.needs_sign_in else said
    if view.withheld:
        yield f"withheld: {', '.join(view.withheld[:5])}{' and more' if len(view.withheld) > 5 else ''}"


def draw_show(on: Console, data: Json, at: datetime) -> None:
    from intercom.cli.ctl_table import age, print_table, safe_text
    from intercom.operators.commands.json_forms import read

    detail = read(DownstreamDetail, data)
    view = detail.summary
    on.print(safe_text(one_line(view.name), "bold"), soft_wrap=True)
    if view.description:
        on.print(safe_text(one_line(view.description)), soft_wrap=not on.is_terminal)
    status = view.status if view.is_enabled else "disabled"
    line = safe_text(f"{status} for {age(view.since, at)}", _STATUS_STYLE[view.status])
    on.print(line.append(one_line(f": {view.reason}"), "not bold"), soft_wrap=True)
    if view.last_error:
        on.print(safe_text(one_line(f"last error: {view.last_error}"), "red"), soft_wrap=True)
    if view.needs_sign_in:
        on.print(safe_text(one_line(f"-> {SIGN_IN} {view.name}"), "cyan"), soft_wrap=True)
    for fault in detail.faults:
        on.print(safe_text(one_line(f"fault of its file: {fault}"), "red"), soft_wrap=True)
    for name, value in _facts(detail, at):
        on.print(safe_text(f"{name:<14}", "dim").append(one_line(value)), soft_wrap=True)
    on.print()
    rows = [
        (
            safe_text(one_line(tool.name), "yellow" if tool.is_withheld else ""),
            safe_text("withheld" if tool.is_withheld else "read-only" if tool.is_read_only else ""),
            safe_text(_pin(tool)),
            safe_text(_shortened(tool.description)),
        )
        for tool in detail.tools
    ]
    print_table(on, ("tool", "", "allowed", ""), rows, "no tools are known: it was never connected, or offers none")
    for tool in detail.tools:
        for mark in tool.marks:
            on.print(safe_text(one_line(f"  ! {tool.name}: {mark}"), "yellow"), soft_wrap=True)
    if len(detail.tools) == 1:
        # The table has the first line only. Other lines stay lines, and nothing in them acts on the terminal.
        for text in detail.tools[0].description.split("\n"):
            on.print(safe_text(f"  {one_line(text)}"), soft_wrap=True)
        on.print()
        parameters = [
            (
                safe_text(one_line(each.name), "bold"),
                safe_text(one_line(each.type)),
                safe_text("required" if each.is_required else ""),
                safe_text(one_line(each.description)),
            )
            for each in detail.tools[0].parameters
        ]
        print_table(on, ("argument", "type", "", ""), parameters, "  it names no arguments")
    else:
        on.print(safe_text(f"  {PROGRAM} show {view.name} TOOL", "cyan"), soft_wrap=True)
    for act in ("test", "disable" if view.is_enabled else "enable", "tail"):
        on.print(safe_text(f"  {PROGRAM} {act} {view.name}", "cyan"), soft_wrap=True)


def _facts(detail: DownstreamDetail, at: datetime) -> Iterable[tuple[str, str]]:
    from intercom.cli.ctl_table import age

    view = detail.summary
    process = f", process {view.pid}" if view.pid is not None else ""
    yield "connection", f"{view.transport}, {view.target}{process}, circuit {view.circuit or 'unknown'}"
    if view.protocol_version:
        took = "" if view.handshake_seconds is None else f", handshake in {milliseconds(view.handshake_seconds)}"
        yield "protocol", f"{view.protocol_version}{took}"
    if detail.capabilities:
        yield "capabilities", ", ".join(detail.capabilities)
    mean = "" if view.mean_seconds is None else f", {milliseconds(view.mean_seconds)} on average"
    last = "" if view.last_call_at is None else f", the last {age(view.last_call_at, at)} ago"
    yield "calls", f"{view.calls} since the start, {view.errors} without answer, {view.running} running{mean}{last}"
    yield "exposed", f"{detail.expose}, shared by {'all agents' if detail.sharing == 'all' else 'one agent each'}"
    if detail.resources or detail.prompts:
        yield "also", f"{count(detail.resources, 'resource')}, {count(detail.prompts, 'prompt')}"
    for name, verbs in detail.classes.items():
        yield f"class {name}", ", ".join(verbs)
    yield "limits", _limits(detail.budget)
    yield "used today", _used(detail.budget)


def _pin(tool: ToolView) -> str:
    if tool.allowed_at is None or tool.allowed_by is None or tool.sha256 is None:
        return "never"
    return one_line(f"{tool.allowed_at:%Y-%m-%d}, {tool.allowed_by}, {tool.sha256[:8]}")


def _shortened(text: str, length: int = 100) -> str:
    line = one_line(text.strip().partition("\n")[0])
    return line if len(line) <= length else f"{line[:length]}..."


def draw_test(on: Console, data: Json, at: datetime) -> None:
    from intercom.cli.ctl_table import safe_text
    from intercom.operators.commands.json_forms import read

    report = read(HealthReport, data)
    head = safe_text(one_line(report.downstream), "bold").append(f" is {report.status}", _HEALTH_STYLE[report.status])
    on.print(head.append(one_line(f"  ({report.transport}, {report.target})"), "not bold dim"), soft_wrap=True)
    for attempt in report.attempts:
        name = f"  {attempt.version:<12} " if len(attempt.version) <= 12 else f"  {attempt.version} "
        line = safe_text(name).append(f"{milliseconds(attempt.seconds):>8}  ")
        line.append("connected" if attempt.fault is None else one_line(attempt.fault), "" if attempt.fault else "green")
        on.print(line, soft_wrap=True)
    for name, value in _report_facts(report):
        on.print(safe_text(f"  {name:<13}", "dim").append(one_line(value)), soft_wrap=True)
    for title, lines in (
        ("its log ends with", report.stderr.splitlines()),
        ("its output is no message", report.output),
    ):
        if lines and report.status is not HealthStatus.HEALTHY:
            on.print(safe_text(f"  {title}:", "dim"))
            for logged in lines[-_LOG_LINES:]:
                on.print(safe_text(f"    | {one_line(logged)}"), soft_wrap=True)
    if report.error is not None:
        on.print(safe_text(one_line(report.error), _HEALTH_STYLE[report.status]), soft_wrap=not on.is_terminal)
    if report.diagnosis is not None:
        on.print(safe_text(f"-> {one_line(report.diagnosis)}", "cyan"), soft_wrap=not on.is_terminal)


def _report_facts(report: HealthReport) -> Iterable[tuple[str, str]]:
    if report.protocol_version is not None:
        yield "in use", report.protocol_version
    if report.server:
        yield "server", report.server
    if report.capabilities:
        yield "capabilities", ", ".join(report.capabilities)
    if report.list_seconds is not None:
        others = [
            count(number, noun)
            for number, noun in ((report.resources, "resource"), (report.prompts, "prompt"))
            if number
        ]
        offered = ", ".join([count(len(report.tools), "tool"), *others])
        yield "offers", f"{offered}, listed in {milliseconds(report.list_seconds)}"
    if report.tools:
        more = len(report.tools) - _NAMED
        yield "tools", ", ".join(report.tools[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def draw_call(on: Console, data: Json, at: datetime) -> None:
    from intercom.cli.ctl_table import safe_text
    from intercom.operators.commands.json_forms import read

    done = read(CallResult, data)
    lines = result_lines(done.result) if done.result is not None else [*done.text.split("\n"), "(cut: it is too long)"]
    for line in lines:
        on.print(safe_text(clean(line)), soft_wrap=True)
    status = "the tool reports an error" if done.is_error else "done"
    facts = [status, milliseconds(done.seconds), f"record {done.invocation_id[:8]}"]
    if done.cost:
        facts.append(f"cost {done.cost:g}")
    if done.redacted:
        facts.append(f"masked: {', '.join(done.redacted)}")
    on.print(safe_text(f"[{one_line(', '.join(facts))}]", "red" if done.is_error else "dim"), soft_wrap=True)


def draw_explain(on: Console, data: Json, at: datetime) -> None:
    from intercom.cli.ctl_table import print_table, safe_text
    from intercom.operators.commands.json_forms import read

    found = read(RoleExplanation, data)
    if found.text:
        on.print(safe_text(found.text), soft_wrap=True)
        return
    rows = [
        (
            safe_text(each.effect, _EFFECT_STYLE.get(each.effect, "")),
            safe_text(one_line(each.downstream)),
            safe_text(one_line(each.tool)),
            safe_text(one_line(each.rule or "no rule names it")),
        )
        for each in found.decisions
    ]
    print_table(on, ("effect", "name", "tool", "rule"), rows, "no tools are known: no server was connected yet")


def draw_evidence(on: Console, data: Json, at: datetime) -> None:
    from intercom.cli.ctl_table import age, print_table, safe_text
    from intercom.operators.commands.json_forms import read

    exports = _exports(data)
    for export in exports:
        for line in evidence_lines(export):
            on.print(safe_text(clean(line)), soft_wrap=True)
    if exports:
        return
    found = read(list[EvidenceLine], data, "lines")
    rows = [
        (
            safe_text(one_line(each.id)),
            age(each.at, at),
            safe_text(one_line(each.session_id[:8])),
            safe_text(one_line(f"{each.downstream}.{each.tool}")),
            count(each.size, "byte"),
            safe_text("secrets masked" if each.is_redacted else ""),
        )
        for each in found
    ]
    columns = ("evidence", "age", "session", "tool", "size", "")
    print_table(on, columns, rows, 'no evidence is kept: name tools under "evidence" in a downstream\'s file')
    if found:
        on.print(safe_text(one_line(f"  {PROGRAM} evidence {found[0].id[:8]}"), "cyan"), soft_wrap=True)


def evidence_lines(export: Mapping[str, Json]) -> list[str]:
    """Return a kept result for people: what it is, and what the tool said. Not yet safe to print."""
    metadata, result = part(export, "metadata"), part(export, "data")
    where = f"{export.get('mcp_tool_name')}.{export.get('mcp_method')}"
    facts = [f"session {export.get('run_id')}", f"record {export.get('mcp_invocation_id')}"]
    if metadata.get("cached_from"):
        facts.append(f"cached from {metadata['cached_from']}")
    if metadata.get("redacted"):
        facts.append("secrets masked")
    head = one_line(f"evidence:{export.get('id')}  {where}  {export.get('timestamp')}")
    return [head, one_line(f"{_INDENT}{', '.join(facts)}"), *(f"{_INDENT}{each}" for each in result_lines(result))]


def draw_budgets(on: Console, data: Json, at: datetime) -> None:
    from intercom.cli.ctl_table import print_table, safe_text
    from intercom.operators.commands.json_forms import read

    rows = [
        (safe_text(one_line(each.downstream)), _limits(each), _used(each), _left(each), _resets(each))
        for each in read(list[BudgetView], data, "budgets")
    ]
    print_table(on, ("name", "limits", "used today", "left", "resets at"), rows, "no MCP servers")
    if rows:
        note = f"your own calls ({PROGRAM} call) count towards the limits, too"
        on.print(safe_text(f"  {note}", "dim"), soft_wrap=not on.is_terminal)


def _limits(budget: BudgetView) -> str:
    parts = []
    if budget.requests_per_second is not None:
        parts.append(f"{budget.requests_per_second:g}/s, {budget.burst} at once")
    if budget.concurrency is not None:
        parts.append(f"{budget.concurrency} running")
    if budget.daily_calls is not None:
        parts.append(f"{count(budget.daily_calls, 'call')} a day")
    if budget.daily_cost is not None:
        parts.append(f"cost {budget.daily_cost:g} a day")
    if budget.timeout_seconds is not None:
        parts.append(f"{budget.timeout_seconds:g} s a call")
    return ", ".join(parts) or "none"


def _used(budget: BudgetView) -> str:
    cost = f", cost {budget.cost_today:g}" if budget.cost_today else ""
    running = f", {budget.running} running" if budget.running else ""
    return f"{count(budget.calls_today, 'call')}{cost}{running}"


def _left(budget: BudgetView) -> str:
    parts = [
        word
        for value, word in (
            (budget.calls_left, f"{budget.calls_left} today"),
            (budget.cost_left, f"cost {budget.cost_left or 0:g}"),
            (budget.burst_left, f"{budget.burst_left} now"),
            (budget.concurrency_left, f"{budget.concurrency_left} more running"),
        )
        if value is not None
    ]
    return ", ".join(parts) or "-"


def _resets(budget: BudgetView) -> str:
    is_daily = budget.daily_calls is not None or budget.daily_cost is not None
    return f"{budget.resets_at:%Y-%m-%d %H:%M} UTC" if is_daily and budget.resets_at is not None else "-"


def draw_lint(on: Console, data: Json, at: datetime) -> None:
    from intercom.cli.ctl_table import safe_text
    from intercom.operators.commands.json_forms import read

    found: Sequence[LintFinding] = read(list[LintFinding], data, "findings")
    if not found:
        on.print("no faults, and no likely mistakes")
    for each in found:
        label: Text = safe_text(f"{each.level:<8}", "bold red" if each.level is LintLevel.FAULT else "yellow")
        on.print(label.append(one_line(each.text), "not bold default"), soft_wrap=not on.is_terminal)


#: The function that draws the answer to a command.
DRAWINGS: Final[Mapping[str, Callable[[Console, Json, datetime], None]]] = {
    "gateway-list": draw_list,
    "gateway-show": draw_show,
    "gateway-test": draw_test,
    "gateway-call": draw_call,
    "gateway-evidence": draw_evidence,
    "gateway-explain": draw_explain,
    "gateway-budgets": draw_budgets,
    "gateway-lint": draw_lint,
}
