"""The `help` command, generated from the table."""

from __future__ import annotations

from attrs import evolve

from intercom.model.errors import NotFound
from intercom.operators.slack.commands.call import Call
from intercom.operators.slack.commands.table import SLASH, Category, Entry, Parameter, either
from intercom.operators.slack.draw import blocks, help
from intercom.operators.slack.draw.drawn import Drawn
from intercom.operators.slack.draw.text import code, escaped, fitted


async def handle(call: Call) -> Drawn:
    """Show all commands, the commands of one category, or one command in full."""
    # A custom command's text comes from the configuration and may contain secrets.
    entries = [evolve(each, summary=call.house.masker.mask(each.summary).text) for each in call.table.entries]
    if not call.arguments.words:
        return help.command_help(entries)
    wanted = call.arguments.words[0].casefold()
    categories = {each.value: each for each in call.table.categories()}
    category = categories.get(wanted) or categories.get(wanted.removesuffix("s"))
    if category is not None:
        return help.command_help(entries, category.value)
    named = [each for each in entries if each.name.casefold() == wanted.removeprefix("/")]
    if named:
        return in_full(named[0])
    raise NotFound(
        f"there is no category or command {wanted[:40]!r}; the categories are {either(categories)},"
        f" and {SLASH} help lists the commands"
    )


def in_full(entry: Entry) -> Drawn:
    """Show one command: its usage, its effect, and each of its arguments."""
    lines = [f"{code(entry.usage)} {fitted(entry.summary, 300, flat=True)}", escaped(entry.details)]
    lines += [f"• {code(shape)} {escaped(doc)}" for shape, doc in entry.arguments]
    if entry.owner_only:
        lines.append("Of a session that somebody started, only they may do it.")
    lines.append(f"For example {code(entry.example)}")
    return Drawn(fitted(entry.usage, 300), (blocks.section(blocks.mrkdwn("\n".join(lines))),))


ENTRY = Entry(
    name="help",
    category=Category.HELP,
    summary="what there is",
    details="Lists the commands by category; of a category, with examples; of one command, all there is to say.",
    example=f"{SLASH} help files",
    handler=handle,
    parameters=(Parameter("category", "a category, or a command"),),
)
