"""The change that a card proposes: a small one is shown in the message, a large one as a file."""

from __future__ import annotations

from intercom.model.approval import ChangeKind, FileChange, Remark, without_secrets
from intercom.model.card import Card
from intercom.model.visible import one_line, visible
from intercom.operators.slack.draw import limits
from intercom.operators.slack.draw.blocks import Block, context, joined, mrkdwn, plain, section
from intercom.operators.slack.draw.drawn import FileDrawn
from intercom.operators.slack.draw.masks import Mask, Masking
from intercom.operators.slack.draw.text import amount, code, cut, fence, short, size

#: How much of the message a diff may take, in characters.
_INLINE = 2_400
#: How many files are listed, and how many characters they may take.
_FILES, _FILES_ROOM = 10, 1_200
_PATH = 120
#: How many remarks are drawn, and the characters of each and of all together.
_REMARKS, _REMARK, _REMARKS_ROOM = 6, 300, 1_500
_WORDS = "the agent's own words, and no diff made from the files"


def is_inline(diff: str) -> bool:
    """Return whether a diff is small enough for the message."""
    if len(diff) > _INLINE:
        return False
    shown = visible(diff)
    return _lines(diff) <= limits.DIFF_LINES and size(shown) + 4 * sum(map(shown.count, "&<>")) <= _INLINE


def change(card: Card, masking: Masking) -> list[Block]:
    """Return the blocks of the proposed change: the diff, or a line that says where its file is."""
    if not card.diff or not card.diff.strip():
        return []
    if is_inline(card.diff):
        words = [context(mrkdwn(f"🤖 {_WORDS}:"))] if card.diff_from_agent else []
        return [*words, section(mrkdwn(fence(masking(_outgoing(card, masking)), limits.SECTION)))]
    what = f"{_WORDS if card.diff_from_agent else 'the diff'} ({amount(_lines(card.diff), 'line')})"
    # The channel shows the card too, but its file is in the thread only.
    return [context(mrkdwn(f"📎 {what} {'is in the thread' if card.session_id else 'follows'} as a file"))]


def remarks(card: Card, masking: Masking, scale: float = 1.0) -> list[Block]:
    """Return the remarks on what the diff cannot show or shows badly; the first few of them."""
    if not card.remarks:
        return []
    lines = [_remark(each, masking) for each in card.remarks[:_REMARKS]]
    text, rest = joined(lines, int(_REMARKS_ROOM * scale))
    rest += len(card.remarks) - len(lines)
    more = f"⚠️ and {rest} more: agent-intercom-ctl show {short(card.id)}" if rest else ""
    return [context(plain("\n".join(part for part in (text, more) if part)))]


def _remark(remark: Remark, masking: Masking) -> str:
    about = "" if remark.path is None else f"{cut(masking(remark.path, _PATH), _PATH, flat=True, escape=False)}: "
    return f"⚠️ {about}{cut(masking(remark.text, _REMARK), _REMARK, flat=True, escape=False)}"


def diff_file(card: Card, masker: Mask) -> FileDrawn | None:
    """Return the diff of a card as a file; None if there is none or the message shows it. The text is masked, made
    visible, and cut to what Slack shows as text. A diff of a megabyte takes long: call this in a worker thread."""
    if not card.diff or not card.diff.strip() or is_inline(card.diff):
        return None
    masking = Masking(masker)
    text = visible(masking(_outgoing(card, masking), limits.SNIPPET))
    head = f"{masking.said}; agent-intercom-ctl show {short(card.id)} shows the original\n" if masking.kinds else ""
    suffix = "txt" if card.diff_from_agent else "diff"
    title = cut(masking(card.title, 200), 200, flat=True, escape=False)
    return FileDrawn(
        filename=f"{file_stem(short(card.id))}.{suffix}",
        title=title,
        snippet_type="diff" if suffix == "diff" else "text",
        text=bounded(head + text, _lines(head + card.diff)),
    )


def _outgoing(card: Card, masking: Masking) -> str:
    """Return the diff, masked also in the lines that only the whole file reveals as secret."""
    diff = without_secrets(card.diff or "", card.masked)
    if card.masked and "[masked: " not in diff:
        # The middle of a private key does not look like one; its first line would.
        masking.kinds["private key"] += 1
    if card.masked:
        masking.count(diff)
    return diff


def bounded(text: str, lines: int | None = None) -> str:
    """Cut `text` at a line end, so that Slack still shows it as text. The last line says how many lines of how many are
    shown (`lines`, if `text` is incomplete)."""
    raw = text.encode()
    count = _lines(text) if lines is None else lines
    if len(raw) <= limits.SNIPPET:
        return text
    head = raw[: limits.SNIPPET - 100].decode(errors="ignore")
    kept = head[: head.rfind("\n") + 1] or head + "\n"
    return f"{kept}\n… {kept.count(chr(10)):,} of {count:,} lines are shown"


def file_stem(name: str) -> str:
    """Return `name` as the beginning of a file name."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)[:64] or "card"


def files(card: Card, masking: Masking, scale: float = 1.0) -> list[Block]:
    """Return the changed files with their added and removed lines; the first ten of them."""
    if not card.files:
        return []
    lines = [_file(entry, masking) for entry in card.files[:_FILES]]
    text, rest = joined(lines, int(_FILES_ROOM * scale))
    rest += len(card.files) - len(lines)
    more = f"and {rest} more" if text else amount(rest, "file")
    return [section(mrkdwn("\n".join(part for part in (text, more if rest else "") if part)))]


def paths(card: Card) -> frozenset[str]:
    return frozenset(entry.path for entry in card.files)


def _file(entry: FileChange, masking: Masking) -> str:
    name = code(masking(one_line(entry.path[:4096]), _PATH), _PATH)
    if entry.old_path:
        name = f"{code(masking(one_line(entry.old_path[:4096]), _PATH), _PATH)} → {name}"
    kind = "" if entry.kind is ChangeKind.WRITE else f" ({entry.kind.value})"
    return f"{name}  +{entry.added} −{entry.removed}{kind}"


def _lines(text: str) -> int:
    return text.removesuffix("\n").count("\n") + 1
