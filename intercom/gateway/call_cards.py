"""What a person sees of a call before it is sent: the operation that its card shows. Pure.

Arguments are shown as JSON, with one difference: a text of several lines stands below its name line by line, each after
a bar. Every other text is JSON on one line, so nobody can write a text that looks like another argument.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from attrs import frozen

from intercom.gateway.client_file_diff import is_named_secret
from intercom.model.json_types import Json
from intercom.model.request import Operation, OperationKind, RiskLevel
from intercom.model.visible_text import count, visible_line

_INDENT: Final = "  "
_BAR: Final = "| "


@frozen
class Target:
    """What a call is for: a downstream, what roles call it (a tool, or `@resources`), and how agents and cards name
    it. A tool may be called `@resources`, too."""

    downstream: str
    verb: str
    label: str
    is_tool: bool = True


def operation_of(target: Target, arguments: Json, *, is_read_only: bool = False) -> Operation:
    """Return the operation that a card shows for a call. Its identity is the tool and the exact arguments, however they
    are shown. A call that may change something is of high risk: nobody but its downstream knows what it does."""
    exact = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    what = f"call {target.verb}" if target.is_tool else f"use {target.label}"
    return Operation(
        kind=OperationKind.MCP,
        tool=target.label,
        title=f"{what} of the MCP server {target.downstream}" if target.is_tool else what,
        identity=json.dumps(["gateway", target.downstream, target.verb, exact]),
        text=shown_arguments({} if arguments is None else arguments),
        least_risk=None if is_read_only else RiskLevel.HIGH,
        risk_reason=None
        if is_read_only
        else f"high risk, because only {target.downstream} knows what this call changes: name tools that change nothing"
        f' under "readOnly" in its file',
    )


def shown_arguments(arguments: Json) -> str:
    """Return arguments for a person to read. Control and hidden characters are written as their codes."""
    return "\n".join(_lines(arguments))


def _lines(value: Json, indent: str = "", name: str = "", start: str = "", end: str = "") -> Iterator[str]:
    """Yield the lines of the value of an argument `name`. It follows `start` on its first line, and `end` comes behind
    it."""
    inner = indent + _INDENT
    if isinstance(value, dict | list) and value:
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        yield f"{indent}{start}{opening}"
        entries = list(value.items()) if isinstance(value, dict) else [("", each) for each in value]
        for at, (key, each) in enumerate(entries):
            begin = f"{_json(key)}: " if isinstance(value, dict) else ""
            yield from _lines(each, inner, key, begin, "," if at < len(entries) - 1 else "")
        yield f"{indent}{closing}{end}"
    elif isinstance(value, str) and "\n" in value and not is_named_secret(name, value):
        # A secret is recognised by its name on the same line, so it stays there.
        lines = value.split("\n")
        yield f"{indent}{start}a text of {count(len(lines), 'line')}"
        yield from (f"{inner}{_BAR}{visible_line(each)}" for each in lines)
        if end:
            # On a line of its own. What searches for secrets would take the next argument for the value of a
            # `password=` at the end of the text, and nobody would see that argument.
            yield f"{indent}{end}"
    else:
        yield f"{indent}{start}{_json(value)}{end}"


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
