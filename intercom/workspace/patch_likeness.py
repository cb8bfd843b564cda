"""Detection of texts that were sent as a patch but do not begin as one: a patch in another form, or a file. Pure.

`git apply` and `patch` skip text before a patch, and accept an indented one. So they would apply a text that holds a
hunk anywhere, and it cannot be told from a file about patches. It is refused; such a file has to be sent as `content`.

Weaker signs are a code block marked `diff`, lines that begin with plus and minus, or an `Index:` line. They count only
if the text begins with them or consists of them, so documentation with such a block further down is a file. A line such
as `3d` counts anywhere. Other ed commands count only if the text consists of them, so most sed scripts are files.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence

#: The beginnings of a text that is parsed as a patch.
BEGINNINGS = ("--- ", "diff ")

#: Invisible marks and spaces, skipped before the first line.
_UNSEEN = "\ufeff\u200b\u200e\u200f\u2060"
#: `patch` accepts these as indentation, even the letter.
_INDENTATION = " \tX"
_HUNK = re.compile(r"@@ -\d+(,\d+)? \+\d")
_NUMBERED = re.compile(r"\*\*\* \d")
_NORMAL = re.compile(r"\d+(,\d+)?[acd]\d+(,\d+)?$")
_SIDE = re.compile(r"[<>] ")
_ED = re.compile(r"\d+(,\d+)?[acdi][ \t]*$")
#: An address of ed: a line number, `.`, `$`, a mark or a pattern, and an offset.
_ED_ADDRESS = r"(?:\d+|[.$]|'[a-z]|/(?:[^/\\]|\\.)*/|\?(?:[^?\\]|\\.)*\?)?(?:[+-]\d*)*"
_ED_COMMAND = re.compile(
    rf"(?P<range>%|{_ED_ADDRESS}(?:[,;]{_ED_ADDRESS})?)"
    rf"(?:(?P<input>[aci])|(?P<change>[dj]|[mt]{_ED_ADDRESS})[lnp]*"
    r"|(?P<inner>s(?P<mark>[^\s\w\\]).*(?P=mark).*|[gv](?P<fence>[^\s\w\\]).*(?P=fence).*)"
    r"|(?P<save>wq?)|k[a-z]|[lnp=uHPqQ]?)[ \t]*$"
)
_RCS = re.compile(r"[ad]\d+ \d+$")
_EXTENDED = re.compile(
    r"(old|new) mode |(new|deleted) file mode |(similarity|dissimilarity) index |(rename|copy) (from|to) "
    r"|index [0-9a-f]|--- |\+\+\+ |@@ -|Binary files |GIT binary patch"
)
_MAIL = re.compile(r"From [0-9a-f]{7,64} ")
_MAIL_FIELD = re.compile(r"(Message-Id|Received|From|To|Cc|Date|Subject|X-[\w-]+|MIME-Version): ", re.IGNORECASE)
_MAIL_SUBJECT = re.compile(r"Subject: .*\[[^\]]*PATCH", re.IGNORECASE)
_FENCE = re.compile(r"(`{3,}|~{3,})\s*([\w+.-]*)")
_FENCED_PATCH = ("diff", "patch", "udiff", "gitdiff", "git-diff", "apply_patch")
_CODEX_BEGIN = "*** Begin Patch"
_CODEX_FILE = re.compile(r"\*\*\* (Update|Add|Delete) File: ")
_CONTEXT_HEADER = re.compile(r"\*\*\* \S")
_CONFLICT = tuple(re.compile(rf"{mark}{{5,9}}( |$)") for mark in "<=>")
#: How far from the first line a search-and-replace block may begin: clients write the file name above it.
_NEAR = 3
_MAIL_FIELDS = 40


def likeness(text: str) -> str | None:
    """Return what `text` looks like, as the end of "it looks like ..."; None if it is clearly a file's content."""
    for how, form in _forms(text):
        found = _anywhere(form) or _at_first(form) or _throughout(form) or _ed_script(form)
        if found is not None:
            return f"{found}{how}"
    return None


def _forms(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines of a text as they are, and without possible wrappings, each with a name for the wrapping."""
    yield "", _lines(text)
    if "&" in text and (plain := html.unescape(text)) != text:
        yield ", escaped for HTML", _lines(plain)
    lines = [line for line in _lines(text) if line.strip()]
    if lines and all(line.startswith(">") for line in lines):
        yield ", quoted as in a mail", [line.removeprefix(">").removeprefix(" ") for line in lines]
    if text.lstrip(_UNSEEN + " \r\n\t").startswith('"'):
        try:
            inner = json.loads(text)
        except ValueError:
            return
        if isinstance(inner, str):
            yield ", as a string of JSON", ["", *_lines(inner)]


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _anywhere(lines: Sequence[str]) -> str | None:
    """Recognise what git or patch would apply, wherever it is in the text."""
    has_codex_file = any(_CODEX_FILE.match(line.strip()) for line in lines)
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    last_side, last_extended = _last(lines, _SIDE), _last(lines, _EXTENDED)
    for number, line in enumerate(lines, 1):
        here = line.lstrip(_INDENTATION)
        if not here or not (here[0].isdigit() or here[0] in "@d*"):
            continue
        below = lines[number].lstrip(_INDENTATION) if number < len(lines) else ""
        if _HUNK.match(here) and number < len(lines):
            return f"a patch with something before it (line {number} begins a hunk)"
        if here.startswith("diff --git ") and number <= last_extended:
            return f"a patch with something before it (line {number} begins a file)"
        if here.startswith("********") and _NUMBERED.match(below):
            return f"a context diff (line {number} begins a hunk)"
        if _NORMAL.match(here) and number <= last_side:
            return f"a diff without context (line {number} begins a change)"
        if _ED.match(here) and ("d" in here or last == "."):
            return f"an ed script (line {number} is a command of it)"
        if here.startswith(_CODEX_BEGIN) and has_codex_file:
            return f"a patch for apply_patch (line {number} begins it)"
    return None


def _ed_script(lines: Sequence[str]) -> str | None:
    """Recognise an ed script without anything else. A sed script has no input that ends with a dot, and names the
    file that it writes, so it is not recognised here."""
    changes = closes = False
    rest = iter(lines)
    for line in rest:
        command = _ED_COMMAND.match(line)
        if command is None:
            return None
        if command["input"]:
            if "." not in rest:
                return None
            changes, closes = True, closes or bool(command["range"])
        changes = changes or bool(command["inner"]) or bool(command["change"] and command["range"])
        closes = closes or bool(command["save"])
    return "an ed script (every line is a command of it, or its input)" if changes and closes else None


def _last(lines: Sequence[str], pattern: re.Pattern[str]) -> int:
    """Return the index of the last line that matches; -1 if none does."""
    found = (i for i in range(len(lines) - 1, -1, -1) if pattern.match(lines[i].lstrip(_INDENTATION)))
    return next(found, -1)


def _at_first(lines: Sequence[str]) -> str | None:
    """Recognise a form by the first line that is not blank."""
    seen = [line.strip(_UNSEEN).strip() for line in lines]
    rows = [row for row in seen if row]
    if not rows:
        return None
    first, second = rows[0], rows[1] if len(rows) > 1 else ""
    if first.startswith("--- ") and second.startswith("+++ "):
        return "a patch with something before its first line, blank lines or marks that nobody sees"
    if first.startswith(("diff --git ", "diff -")):
        return "a patch with something before its first line, blank lines or marks that nobody sees"
    if first.startswith("+++ ") and second.startswith(("--- ", "@@")):
        return "a patch without the first line of its header"
    if first.startswith("@@") and (len(first) == 2 or first[2:3] in (" ", "@")):
        return "a hunk of a patch without the header that names its file"
    if first.startswith("Index: ") and second.startswith("====="):
        return "a patch with an Index line before its header"
    if first.startswith(("Binary files ", "GIT binary patch")):
        return "a binary patch"
    if first.startswith(_CODEX_BEGIN) or _CODEX_FILE.match(first):
        return "a patch for apply_patch"
    if _CONTEXT_HEADER.match(first) and second.startswith("--- "):
        return "a context diff"
    if _RCS.match(first):
        return "a diff for RCS"
    if _MAIL.match(first) or (_MAIL_FIELD.match(first) and any(map(_MAIL_SUBJECT.match, rows[:_MAIL_FIELDS]))):
        return "a patch in a mail"
    return _fenced(rows) or _conflicting(rows)


def _fenced(rows: Sequence[str]) -> str | None:
    """Recognise a text that begins with a fenced patch, is one fenced block, or is mostly fenced patches."""
    first = _FENCE.match(rows[0])
    if first is not None:
        if first[2].lower() in _FENCED_PATCH:
            return f"a patch in a code block ({rows[0][:20]})"
        closing = [i for i, row in enumerate(rows) if i and row.startswith(first[1]) and not row.strip(first[1][0])]
        if closing[:1] == [len(rows) - 1]:
            return "a code block with its fences, which would be written too"
    inside = outside = 0
    fence = ""
    for row in rows:
        found = _FENCE.match(row)
        if fence:
            fence = "" if row.startswith(fence) and not row.strip(fence[0]) else fence
            inside += bool(fence)
        elif found is not None and found[2].lower() in _FENCED_PATCH:
            fence = found[1]
        else:
            outside += 1
    return "a patch in a code block, with little else around it" if inside > outside else None


def _conflicting(rows: Sequence[str]) -> str | None:
    begin, middle, end = (next((i for i, row in enumerate(rows) if pattern.match(row)), None) for pattern in _CONFLICT)
    if begin is None or middle is None or end is None or not begin < middle < end:
        return None
    if begin >= _NEAR or any(" " in row for row in rows[:begin]):
        return None  # prose stands before it
    return "a block to search and replace, or a file with conflict markers"


def _throughout(lines: Sequence[str]) -> str | None:
    """Recognise a text in which every line begins like a line of a hunk, unless it is a list."""
    rows = [line for line in lines if line.strip()]
    if not rows or not all(row.startswith(("+", "-", " ", "\\ ")) for row in rows):
        return None
    added = [row for row in rows if row.startswith("+")]
    removed = [row for row in rows if row.startswith("-")]
    if not added and not removed:
        return None
    if not added and all(row in ("-", "---") or row.startswith("- ") for row in removed) and rows[0].startswith("-"):
        return None  # a list, as in YAML or Markdown
    return "lines of a hunk without headers (every line begins with a plus, a minus or a space)"
