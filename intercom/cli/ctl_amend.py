"""Decisions that say more than yes or no: on a part of a proposal, an edited text, comments by line, several cards.

What will happen is shown first, and asked about at a terminal. For a part or an edit it is the card as the server would
approve it: that card is what a person signs, and the server refuses if its files change in between.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

from attrs import asdict

from intercom.cli.ctl_draw import console, now, print_card
from intercom.cli.ctl_sign import Card as CardEntry
from intercom.cli.ctl_sign import Sender, has_key, summary
from intercom.cli.ctl_text import agreed, clean, count, done_line, one_line, short
from intercom.local.places import Places
from intercom.model.amendment import Comment, told_of_comments
from intercom.model.card import Card, CardKind
from intercom.model.card_hunks import checked_comments, comments_in, how_to_comment, new_line_numbers
from intercom.model.errors import IntercomError, InvalidArguments
from intercom.model.json_types import JsonObject
from intercom.operators.commands.command_table import MAX_REQUEST
from intercom.operators.commands.json_forms import read
from intercom.operators.ctl.client import MAY_BE_DONE, NoServer, Refusal, request

#: Exit codes: done; the server or the person refused.
_DONE, _REFUSED, _NO_SERVER = 0, 1, 3
#: The longest request of an edit, in bytes as JSON, with room for its signature.
_LONGEST = MAX_REQUEST - 4096
#: Where the drafts are that were not sent, by what they are of. The inbox, which is one process, opens them again.
_KEPT: dict[tuple[object, ...], Path] = {}
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class _Stopped(Exception):
    """Nothing was sent; the text says why."""


def decide(where: Places, command: str, fields: JsonObject, options: argparse.Namespace) -> int:
    """Carry out `approve`, `reject` or `changes` as it was typed. Returns the exit code. Raises what `request`
    raises."""
    if command == "changes" or len(options.id) == 1:
        return _REFUSED if decide_one(where, command, fields, options) is None else _DONE
    try:
        return _decide_each(where, command, fields, options)
    except _Stopped as stopped:
        _say_stopped(stopped, options)
        return _REFUSED


def decide_one(where: Places, command: str, fields: JsonObject, options: argparse.Namespace) -> JsonObject | None:
    """Carry out `approve` or `changes` about one card. Returns the server's answer; None if nothing was decided, after
    it was said why. Raises what `request` raises."""
    try:
        amended = _request_changes if command == "changes" else _approve_amended
        return amended(where, fields, options)
    except _Stopped as stopped:
        _say_stopped(stopped, options)
        return None


def _say_stopped(stopped: _Stopped, options: argparse.Namespace) -> None:
    said = {"ok": False, "error": str(stopped), "error_code": "invalid_arguments"}
    print(json.dumps(said) if options.json else clean(str(stopped)), file=None if options.json else sys.stderr)


# --- several cards ---------------------------------------------------------------------------------------------------


def _decide_each(where: Places, command: str, fields: JsonObject, options: argparse.Namespace) -> int:
    """Say what will happen, then decide each card. A refusal of one does not stop the others. What stops them, as the
    loss of the server, is raised; with --json it is told together with what was decided before."""
    if command == "approve" and (options.edit or options.hunks is not None):
        raise _Stopped("hunks and edits are of one card: name one id")
    found: dict[str, CardEntry] = {}
    session = str(fields.pop("session", None) or "")
    for id in _waiting(where, session, options) if options.all else options.id:
        card = request(where, "show", {"id": id})
        found[str(card["request_id"])] = card
    closed = [card for card in found.values() if command not in card["choices"]]
    if closed:
        names = ", ".join(f"{short(card['request_id'])} ({card['status']})" for card in closed)
        raise _Stopped(f"nothing was decided: {command} does not answer {names}")
    if not options.json:
        if command == "approve" and has_key(where):
            # One PIN signs all of them, so each is on the screen before it is typed.
            for card in found.values():
                print_card(console(), read(Card, card), now(), hints=False)
        print(f"{command} {count(len(found), 'request')}:")
        print("\n".join(summary(command, card) for card in found.values()))
        _agree(f"{command} all {len(found)}?")
    sender, failed = Sender(where, f"{command} {count(len(found), 'request')}"), 0
    results: list[JsonObject] = []
    for id, card in found.items():
        if options.json:
            # Each is shown before its own PIN.
            sender = Sender(where)
        shown = None if options.json or command != "approve" else card
        try:
            done: JsonObject = sender.send(command, {**fields, "id": id}, card=shown)
        except Refusal as refusal:
            failed += 1
            done = {"request_id": id, "error": str(refusal), "error_code": refusal.code}
            if not options.json:
                print(clean(f"{short(id)}: {refusal}"), file=sys.stderr)
        except (NoServer, IntercomError, OSError) as fault:
            if not options.json:
                raise
            results += _not_answered(where, fault, [*found][len(results) :])
            print(json.dumps(results))
            return _NO_SERVER
        else:
            if not options.json:
                print(done_line(done))
        results.append(done)
    if options.json:
        print(json.dumps(results))
    return _REFUSED if failed else _DONE


def _not_answered(where: Places, fault: Exception, ids: Sequence[str]) -> list[JsonObject]:
    """Return the results of the first of these cards, whose decision has no answer, and of the others, which were not
    sent."""
    if isinstance(fault, NoServer):
        why = f"no server answers at {where.ctl_socket}{f'; {MAY_BE_DONE}' if fault.may_be_done else ''}"
    else:
        why = str(fault)
    code = fault.error_code if isinstance(fault, IntercomError) else "ipc"
    told = [why, *["not sent, because the one before has no answer"] * (len(ids) - 1)]
    return [{"request_id": id, "error": said, "error_code": code} for id, said in zip(ids, told, strict=True)]


def _waiting(where: Places, session: str, options: argparse.Namespace) -> list[str]:
    """Return the ids of the proposals that wait. Raises _Stopped if the person would not see and confirm them."""
    if options.json or not sys.stdin.isatty():
        raise _Stopped("--all says first what will happen, and asks, which needs a terminal; name the ids instead")
    cards = request(where, "pending", {"session": session} if session else {})
    found = [str(card["request_id"]) for card in cards if card["kind"] == CardKind.APPROVAL.value]
    if not found:
        raise _Stopped("no proposal waits")
    return found


# --- a part of one card, or an edited text ---------------------------------------------------------------------------


def _approve_amended(where: Places, fields: JsonObject, options: argparse.Namespace) -> JsonObject:
    if options.edit and options.hunks is not None:
        raise _Stopped("give --hunks or --edit, not both")
    note: JsonObject = {"text": fields["text"]} if fields.get("text") else {}
    if not options.edit:
        return _approve_shown(where, {"id": fields["id"], "hunks": options.hunks, **note}, options)
    whole = request(where, "amend", {"id": fields["id"], "everything": True})
    contents: Mapping[str, str] = whole["contents"]
    if not contents:
        raise _Stopped("no file of this proposal can be edited: they are removed, or are no text")
    with _drafts(contents, ("edit", whole["card"]["request_id"], whole["card"]["proposal_hash"])) as files:
        edit = json.dumps(_edited(contents, files), ensure_ascii=False)
        asked: JsonObject = {"id": whole["card"]["request_id"], "shown": whole["card"]["proposal_hash"], "edit": edit}
        if (size := len(json.dumps(asked))) > _LONGEST:
            raise _Stopped(
                f"nothing was decided: your text takes {size} bytes as a request, and {_LONGEST} is the most"
            )
        return _approve_shown(where, asked | note, options)


def _approve_shown(where: Places, asked: JsonObject, options: argparse.Namespace) -> JsonObject:
    """Show what would be approved, and approve it if the person agrees. `asked` are the fields of `amend`. Returns the
    server's answer."""
    found = request(where, "amend", asked)
    card = found["card"]
    sent = asked | {"id": card["request_id"], "shown": card["proposal_hash"]}
    if not options.json:
        print("this is what will be approved:")
        print_card(console(), read(Card, card), now(), hints=False)
        if found["text"]:
            print(clean(f"the agent is told: {found['text']}"))
        what = "your edit" if "edit" in asked else "this part"
        _agree(f"approve {what} of {short(card['request_id'])} ({one_line(str(card['title']))})?")
    done: JsonObject = Sender(where).send("approve", sent, card=card, told=found["text"], is_shown=not options.json)
    changed = "" if not card.get("amended") else " your edit of" if "edit" in asked else " a part of"
    print(json.dumps(done) if options.json else done_line({**done, "status": f"{done['status']}{changed}"}))
    return done


def _edited(contents: Mapping[str, str], files: Mapping[str, Path]) -> dict[str, str]:
    """Return the contents that the person changed in an editor, by path."""
    _run_editor([*files.values()])
    try:
        after = {path: file.read_bytes().decode() for path, file in files.items()}
    except (UnicodeDecodeError, OSError) as fault:
        raise _Stopped(f"nothing was decided: an edited file cannot be read as UTF-8 ({fault})") from None
    changed = {path: text for path, text in after.items() if text != contents[path]}
    if not changed:
        raise _Stopped("nothing was decided: nothing was changed in the editor")
    return changed


@contextmanager
def _drafts(texts: Mapping[str, str], what: tuple[object, ...]) -> Iterator[dict[str, Path]]:
    """Yield private files with these texts, by path, for an editor. They are removed in the end; if something was
    raised, what the person wrote is kept, and they are told where. The next draft of `what` in this process opens with
    it."""
    kept = _KEPT.pop(what, None)
    directory = kept or Path(tempfile.mkdtemp(prefix="intercom-edit-"))
    files: dict[str, Path] = {}
    for number, path in enumerate(texts, 1):
        # The number keeps the names apart, and an option of the editor away.
        files[path] = directory / f"{number}-{_UNSAFE.sub('_', os.path.basename(path))[-80:]}"
    is_done = False
    try:
        for path, file in files.items():
            if kept is None or not file.is_file():
                directory.mkdir(mode=0o700, exist_ok=True)
                file.write_bytes(texts[path].encode())
        yield files
        is_done = True
    finally:
        if is_done or not any(_was_changed(files[path], text) for path, text in texts.items()):
            shutil.rmtree(directory, ignore_errors=True)
        else:
            _KEPT[what] = directory
            print(f"what you wrote is kept in {directory}", file=sys.stderr)


def _was_changed(file: Path, text: str) -> bool:
    try:
        return file.read_bytes() != text.encode()
    except OSError:
        return False


def _run_editor(files: Sequence[Path]) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    if not sys.stdin.isatty():
        raise _Stopped("an editor needs a terminal; nothing was decided")
    try:
        code = subprocess.run([*shlex.split(editor), *map(str, files)], check=False).returncode
    except (OSError, ValueError) as fault:
        raise _Stopped(f"nothing was decided: the editor {editor} did not start: {fault}; set EDITOR") from None
    if code:
        raise _Stopped(f"nothing was decided: the editor {editor} ended with {code}")


# --- comments by line ------------------------------------------------------------------------------------------------


def _request_changes(where: Places, fields: JsonObject, options: argparse.Namespace) -> JsonObject:
    card = request(where, "show", {"id": fields["id"]})
    paths = [str(change["path"]) for change in card["files"] or ()]
    comments = tuple(_comment(place, text, paths) for place, text in options.comment or ())
    try:
        if options.file is not None:
            comments += comments_in(_text_of(options.file), paths)
        if comments or options.file is not None:
            on_file = _OF_FILE if options.file is not None else _by_option
            return _send_comments(where, card, _checked(comments, card, on_file), fields, options)
    except InvalidArguments as fault:
        raise _Stopped(f"nothing was decided: {fault}") from None
    with _drafts({"comments.txt": _to_fill_in(card)}, ("changes", card["request_id"], card["proposal_hash"])) as files:
        [file] = files.values()
        return _send_comments(where, card, _written_comments(file, card, paths), fields, options, asks=True)


def _written_comments(file: Path, card: CardEntry, paths: Sequence[str]) -> tuple[Comment, ...]:
    """Return the comments that the person writes in an editor. If they do not fit the card, the editor opens again
    with them, as long as the person wants that."""
    while True:
        _run_editor([file])
        try:
            return _checked(comments_in(_text_of(str(file)), paths), card)
        except InvalidArguments as fault:
            print(clean(str(fault)), file=sys.stderr)
            if not agreed("open the editor again, with what you wrote?"):
                raise _Stopped("nothing was decided: the comments do not fit the card") from None


#: How a line of a file with comments says one on a file as a whole.
_OF_FILE = "{}: TEXT".format


def _by_option(path: str) -> str:
    return f"--comment {shlex.quote(path)} TEXT"


def _checked(
    comments: tuple[Comment, ...], card: CardEntry, on_file: Callable[[str], str] = _OF_FILE
) -> tuple[Comment, ...]:
    """Return the comments, if the server would take them for this card. Raises InvalidArguments if not, which says how
    to comment on a file as a whole: `on_file`."""
    shown = read(Card, card)
    # About a card without a diff of files, or one that is closed, the server says more.
    if not shown.amendable:
        return comments
    return checked_comments(comments, shown.diff or "", shown.files, on_file=on_file)


def _send_comments(
    where: Places,
    card: CardEntry,
    comments: tuple[Comment, ...],
    fields: JsonObject,
    options: argparse.Namespace,
    *,
    asks: bool = False,
) -> JsonObject:
    """Send the comments; with `asks`, if the person agrees to what the agent is told. Returns the server's answer."""
    if not comments:
        how = "write one below the line that it is about" if asks else "give one with --comment FILE:LINE TEXT"
        raise _Stopped(f"nothing was decided, because there is no comment: {how}, or reject the change with a reason")
    note = str(fields.get("text") or "").strip() or None
    told = told_of_comments(comments, note)
    if not options.json:
        print(clean(f"request changes to {short(str(card['request_id']))}: {card['title']}\nthe agent is told: {told}"))
    if asks and not options.json:
        _agree(f"request these changes to {short(str(card['request_id']))}?")
    said = json.dumps([{name: part for name, part in asdict(each).items() if part is not None} for each in comments])
    sent: JsonObject = {"id": card["request_id"], "comments": said}
    if note:
        sent["text"] = note
    # The card was not drawn, so a terminal that keeps the key must not take it for one that was.
    done: JsonObject = Sender(where).send("changes", sent, told=told, is_shown=not options.json)
    print(json.dumps(done) if options.json else done_line({**done, "status": "changes requested"}))
    return done


def _comment(place: str, text: str, paths: Sequence[str]) -> Comment:
    """Return a comment on `FILE:LINE`, or on `FILE`; on `LINE`, if there is only one file."""
    if place not in paths and len(paths) == 1 and place.isascii() and place.isdigit():
        place = f"{paths[0]}:{place}"
    path, colon, line = place.rpartition(":")
    if place not in paths and colon and line.isascii() and line.isdigit() and len(line) < 10:
        return Comment(path, text, int(line))
    return Comment(place, text)


def _text_of(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise _Stopped(f"nothing was decided: {file} cannot be read: {fault}") from None


def _to_fill_in(card: CardEntry) -> str:
    """Return what an editor opens with: how to write comments, and the card's diff with the new files' lines
    numbered."""
    diff = str(card["diff"] or "")
    numbers = ["" if number is None else str(number) for number in new_line_numbers(diff)]
    width = max(map(len, numbers), default=0)
    lines = clean(diff.removesuffix("\n")).split("\n")
    head = (
        f"# Write a comment as {how_to_comment(card['files'] or ())}, with a line of the new file, or as FILE: TEXT.",
        "# Indented lines continue it. Lines that begin with # are left out; without a comment nothing is sent.",
        "# The numbers below are those of the new file's lines. Save and leave to go on: you see first what is sent.",
        "",
        *(f"# {number:>{width}} {line}" for number, line in zip_longest(numbers, lines, fillvalue="")),
    )
    return "\n".join(head) + "\n"


def _agree(question: str) -> None:
    """Ask at a terminal. Raises _Stopped if the person does not agree."""
    if sys.stdin.isatty() and not agreed(one_line(question)):
        raise _Stopped("nothing was decided")
