"""Commands about files of a workspace: list a directory, show a file."""

from __future__ import annotations

from functools import partial

import trio

from intercom.model.errors import InvalidArguments
from intercom.operators.slack.commands.call import Call
from intercom.operators.slack.commands.table import SLASH, Category, Entry, Option, Parameter
from intercom.operators.slack.draw import files as drawing
from intercom.operators.slack.draw.drawn import Drawn, FileDrawn
from intercom.operators.slack.draw.masks import Mask
from intercom.workspace import listing, showing
from intercom.workspace.listing import DEEPEST, DEPTH, Tree
from intercom.workspace.showing import FileText

_SESSION = Option("--session", "ID", "look in this session's workspace")


async def list_files(call: Call) -> Drawn | None:
    """Show the tree of a directory in the channel."""
    depth = _depth(call.arguments.options.get("--depth"))
    path = call.arguments.words[0] if call.arguments.words else "."
    workspace = await call.workspace()
    tree = await trio.to_thread.run_sync(listing.tree, workspace.root, path, depth)
    drawn, beside = await trio.to_thread.run_sync(_tree, tree, call.house.masker)
    return await call.show(drawn, beside, workspace)


async def show_file(call: Call) -> Drawn | None:
    """Show the text of a file, or some of its lines, in the channel."""
    if not call.arguments.words:
        raise InvalidArguments(f"name a file: {call.entry.usage}")
    asked = call.arguments.options.get("--lines")
    lines = None if asked is None else showing.read_range(asked)
    workspace = await call.workspace()
    found = await trio.to_thread.run_sync(showing.show, workspace.root, call.arguments.words[0], lines)
    drawn, beside = await trio.to_thread.run_sync(_file, found, call.house.masker)
    return await call.show(drawn, beside, workspace)


def _depth(given: str | None) -> int:
    if given is None:
        return DEPTH
    if not (given.isascii() and given.isdecimal() and len(given) < 4):
        raise InvalidArguments(f"--depth is a number from 1 to {DEEPEST}, not {given[:40]!r}")
    return int(given)


def _tree(tree: Tree, masker: Mask) -> tuple[Drawn, FileDrawn | None]:
    return drawing.tree(tree.path, "\n".join(tree.lines), tree.directories, tree.files, tree.depth, masker)


def _file(found: FileText, masker: Mask) -> tuple[Drawn, FileDrawn | None]:
    draw = partial(drawing.file, found.path, found.text, found.size, found.modified, masker)
    draw = partial(draw, total=found.line_count, masked=found.masked)
    return draw() if found.is_whole else draw(lines=(found.first, found.last))


LIST = Entry(
    name="list-files",
    category=Category.FILES,
    summary="list a directory of the workspace",
    details=(
        "Draws the directory as a tree in the channel. Hidden directories, node_modules and target are left out below "
        "the one named; links are shown and not followed."
    ),
    example=f"{SLASH} list-files src --depth 2",
    handler=list_files,
    parameters=(Parameter("path", "a directory, relative to the workspace; left out: the workspace itself"),),
    options=(Option("--depth", "N", f"how many levels, 1 to {DEEPEST}; left out: {DEPTH}"), _SESSION),
)

SHOW = Entry(
    name="show-file",
    category=Category.FILES,
    summary="show a file of the workspace",
    details="Shows the text of a file in the channel, a long one as a file. Secrets that are recognised are masked.",
    example=f"{SLASH} show-file src/main.py --lines 10:50",
    handler=show_file,
    parameters=(Parameter("path", "the file, relative to the workspace", required=True),),
    options=(Option("--lines", "A:B", "only the lines A to B, counted from 1; A: and :B work too"), _SESSION),
)
