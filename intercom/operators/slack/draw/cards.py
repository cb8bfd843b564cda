"""What the channel shows of itself: cards with changes, buttons and status, threads' first messages, notices."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from intercom.model.card import AGENTS, Card, CardKind, CardState, Notice
from intercom.model.client_titles import title_of
from intercom.model.decision import Decided
from intercom.model.request import ChangeKind, FileChange, PromptType, Remark, RiskLevel, without_secrets
from intercom.model.session import ProgressStatus, Session, SessionStatus
from intercom.model.visible_text import one_line, visible
from intercom.operators.slack.buttons import BY_KIND, COMMAND_BUTTONS, OUTCOMES, STOP_SESSION
from intercom.operators.slack.draw import blocks as draw_blocks
from intercom.operators.slack.draw.blocks import (
    Block,
    Drawn,
    FileDrawn,
    Mask,
    Masking,
    amount,
    bounded,
    button,
    code,
    context,
    cut,
    drawn_to_fit,
    fence,
    fields,
    file_stem,
    fits,
    fitted,
    header,
    is_cut,
    joined,
    line_count,
    moment,
    mrkdwn,
    plain,
    section,
    short,
)

_STATES: Final = {
    CardState.QUEUED: "⏳ Queued",
    CardState.APPROVED: "✅ Approved",
    CardState.REJECTED: "❌ Rejected",
    CardState.ANSWERED: "✅ Answered",
    CardState.DELIVERED: "✅ Delivered",
    CardState.APPLIED: "✅ Applied",
    CardState.EXPIRED: "⌛ Expired",
    CardState.INTERRUPTED: "🔌 Interrupted: the session ended first",
    CardState.CLOSED: "☑️ Closed",
}
#: The states that determine how a card ended, even after a decision.
_OVER: Final = frozenset({CardState.EXPIRED, CardState.INTERRUPTED})
#: How the operator service stores a Slack user: `Ann (U0123)`.
_IN_SLACK = re.compile(r"(?P<name>.+) \((?P<id>[A-Z0-9]+)\)", re.DOTALL)
_CHANNELS: Final = {
    "ctl": "on the terminal",
    "web": "in the browser",
    "slack": "in Slack",
    "embed": "in a program",
    "elicitation": "over the agent's own connection",
}

#: The steps of each kind of card that has them.
_STEPS: Final = {
    **dict.fromkeys((CardKind.STEER, CardKind.TASK), (CardState.QUEUED, CardState.DELIVERED)),
    **dict.fromkeys((CardKind.PROMPT, CardKind.STANDBY), (CardState.PENDING, CardState.ANSWERED, CardState.DELIVERED)),
    CardKind.APPROVAL: (CardState.PENDING, CardState.APPROVED, CardState.DELIVERED, CardState.APPLIED),
    CardKind.RESTORE: (CardState.PENDING, CardState.APPROVED, CardState.APPLIED),
}
_REASON = 800


def headline(card: Card) -> str:
    """Return the state in a word or two, without any foreign text."""
    if card.decided is not None and card.state not in _OVER:
        return OUTCOMES.get(card.decided.decision, _STATES.get(card.state, "✅ Answered"))
    return _STATES.get(card.state, "⏳ Pending")


def outcome(card: Card, masking: Masking, scale: float = 1.0) -> list[Block]:
    """Return the decision, by whom, when and why; no blocks while the card is pending."""
    if card.state is CardState.PENDING:
        return []
    text = headline(card)
    decided = card.decided
    if decided is None:
        return [section(plain(text))]
    if card.state in _OVER and decided.channel != "timeout":
        # The person who approved did not end the card: its end came later.
        said = OUTCOMES.get(decided.decision, "✅ Answered")
        blocks = [section(plain(text)), section(plain(f"{said}{_who(decided, masking)}"))]
    else:
        blocks = [section(plain(f"{text}{_who(decided, masking)}"))]
    if decided.text:
        room = int(_REASON * scale)
        blocks.append(section(plain(f"“{masking(decided.text, room).strip()}”", room)))
    # Two members may choose the same name, so the id stays, and says what it is.
    known = _known(decided)
    by_id = f" · Slack member {known['id'][:40]}" if known else ""
    blocks.append(context(mrkdwn(f"🕑 {moment(decided.at)}{by_id}")))
    return blocks


def status_lines(card: Card) -> list[Block]:
    """Return the steps of the card, with the current one in bold."""
    steps: tuple[CardState, ...] | None = _STEPS.get(card.kind)
    if steps is None:
        return []
    now = card.state
    if card.kind is CardKind.APPROVAL and now is CardState.REJECTED:
        # The state stays, and the agent hears of it all the same.
        steps = (CardState.PENDING, CardState.REJECTED, CardState.DELIVERED)
        now = CardState.DELIVERED if card.delivered else now
    elif now not in steps:
        steps = (steps[0], now)
    words = [f"*{step.value.capitalize()}*" if step is now else step.value.capitalize() for step in steps]
    return [context(mrkdwn(" → ".join(words)))]


def _who(decided: Decided, masking: Masking) -> str:
    if decided.channel == "timeout":
        return " by itself: nobody answered in time"
    if decided.channel == "policy":
        return " by the workspace's policy"
    if decided.channel == "grant":
        return " by a grant, which a person gave in advance"
    known = _known(decided)
    by = masking(known["name"] if known else decided.by, 200).strip()[:200] or "someone"
    return f" by {by} {_CHANNELS.get(decided.channel, '')}".rstrip()


def _known(decided: Decided) -> re.Match[str] | None:
    """Match the name and id of a Slack user; None for anybody else."""
    return _IN_SLACK.fullmatch(decided.by) if decided.channel == "slack" else None


def buttons(card: Card) -> list[Block]:
    """Return the block with the card's buttons, as a list; empty if the card shows none now."""
    row = [each for each in BY_KIND[card.kind] if card.state in each.states]
    shown = [button(each, card.id) for each in row if each.dialog is None or card.amendable]
    if card.state is CardState.PENDING:
        shown += [button(each, card.id) for each in COMMAND_BUTTONS.values() if each.kind is card.kind]
    return [{"type": "actions", "elements": shown}] if shown else []


#: How much of the message a diff may take, in characters.
_INLINE = 2_400
#: How much of the message the first lines of a longer diff may take, in characters.
_EXCERPT = 1_200
#: How many files are listed, and how many characters they may take.
_FILES, _FILES_ROOM = 10, 1_200
_PATH = 120
#: How many remarks are drawn, and the characters of each and of all together.
_REMARKS, _REMARK, _REMARKS_ROOM = 6, 300, 1_500
_AGENTS_TEXT = "the agent's own text, not a diff made from the files"


def is_inline(diff: str) -> bool:
    """Return whether a diff is small enough for the message."""
    return len(diff) <= _INLINE and fits(visible(diff), draw_blocks.DIFF_LINES, _INLINE)


def change(card: Card, masking: Masking, scale: float = 1.0) -> list[Block]:
    """Return the blocks of the proposed change: the diff, or its first lines and a line that says where its file is."""
    if not card.diff or not card.diff.strip():
        return []
    if is_inline(card.diff):
        label = [context(mrkdwn(f"🤖 {_AGENTS_TEXT}:"))] if card.diff_from_agent else []
        return [*label, section(mrkdwn(fence(masking(_outgoing(card, masking)), draw_blocks.SECTION)))]
    what = f"{_AGENTS_TEXT if card.diff_from_agent else 'the diff'} ({amount(line_count(card.diff), 'line')})"
    if card.amended:
        # A file that was posted stays as it was.
        command = code(f"agent-intercom-ctl show {short(card.id)}")
        said = f"📎 {command} shows {what}; the file in the thread is what the agent proposed"
    else:
        said = f"📎 {what} is in the thread of this message as a file"
    return [*_first_lines(card, masking, int(_EXCERPT * scale)), context(mrkdwn(said))]


def _first_lines(card: Card, masking: Masking, room: int) -> list[Block]:
    """Return the first lines of a diff that is too long for the message; no block if not one of them fits."""
    text = visible(masking(_outgoing(card, masking), room))
    shown, _ = joined(text.split("\n")[: draw_blocks.DIFF_LINES], room)
    if not shown.strip():
        return []
    said = f"🤖 the first lines of {_AGENTS_TEXT}:" if card.diff_from_agent else "the first lines of the diff:"
    return [context(mrkdwn(said)), section(mrkdwn(fence(shown, draw_blocks.SECTION)))]


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
    text = visible(masking(_outgoing(card, masking), draw_blocks.SNIPPET))
    head = f"{masking.said}; agent-intercom-ctl show {short(card.id)} shows the original\n" if masking.kinds else ""
    suffix = "txt" if card.diff_from_agent else "diff"
    title = cut(masking(card.title, 200), 200, flat=True, escape=False)
    return FileDrawn(
        filename=f"{file_stem(short(card.id))}.{suffix}",
        title=title,
        snippet_type="diff" if suffix == "diff" else "text",
        text=bounded(head + text, line_count(head + card.diff)),
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


def files(card: Card, masking: Masking, scale: float = 1.0) -> list[Block]:
    """Return the changed files with their added and removed lines; the first ten of them."""
    if not card.files:
        return []
    lines = [_file(entry, masking) for entry in card.files[:_FILES]]
    text, rest = joined(lines, int(_FILES_ROOM * scale))
    rest += len(card.files) - len(lines)
    more = f"and {rest} more" if text else amount(rest, "file")
    return [section(mrkdwn("\n".join(part for part in (text, more if rest else "") if part)))]


def _file(entry: FileChange, masking: Masking) -> str:
    names = (entry.old_path, entry.path) if entry.old_path else (entry.path,)
    name = " → ".join(code(masking(one_line(each[:4096]), _PATH), _PATH) for each in names)
    kind = "" if entry.kind is ChangeKind.WRITE else f" ({entry.kind.value})"
    return f"{name}  +{entry.added} −{entry.removed}{kind}"


KINDS: Final = {
    CardKind.APPROVAL: "📝",
    CardKind.PROMPT: "🔄",
    CardKind.STANDBY: "⏸️",
    CardKind.STALL: "🐌",
    CardKind.POLICY: "🛡️",
    CardKind.APPLY: "🚧",
    CardKind.STEER: "🧭",
    CardKind.TASK: "📥",
    CardKind.RESTORE: "♻️",
    CardKind.ROOM: "💬",
    CardKind.TOOLS: "🔌",
}
_PROMPTS: Final = {
    PromptType.CONTINUATION: "🔄",
    PromptType.CLARIFICATION: "❓",
    PromptType.ERROR_RECOVERY: "⚠️",
    PromptType.RESOURCE_WARNING: "📊",
}
RISKS: Final = {RiskLevel.LOW: "🟢", RiskLevel.HIGH: "🟡", RiskLevel.CRITICAL: "🔴"}

#: Notifies everyone in the channel. Only Intercom can write it, because foreign text is escaped.
CALL = "<!channel>"

_BODY, _DETAIL, _NOTE, _TITLE = 1_800, 300, 400, 120


def card(card: Card, masker: Mask, *, first: bool = False) -> Drawn:
    """Return the message that shows the card. `first` means that it is posted, not updated; then an urgent card also
    notifies the channel."""
    return drawn_to_fit(partial(_draw, card, masker, first))


def is_urgent(card: Card) -> bool:
    """Return whether the card notifies everyone: a pending approval of high or critical risk, or an escalated alert."""
    if card.state is not CardState.PENDING:
        return False
    if card.kind is CardKind.STALL:
        return card.escalated
    return card.kind is CardKind.APPROVAL and card.risk in (RiskLevel.HIGH, RiskLevel.CRITICAL)


def escalation(card: Card, masker: Mask) -> Drawn:
    """Return the line that notifies everyone of an escalated alert: an update of its card would notify nobody."""
    title = Masking(masker)(card.title, _TITLE)
    text = f"{CALL} 📣 {fitted(title, _TITLE, flat=True)}"
    call = f"{CALL} 📣 *escalated*: the agent does not react; session {code(short(card.session_id))}"
    return Drawn(text, (section(mrkdwn(call)), section(plain(title, 2 * _TITLE))))


def _draw(card: Card, masker: Mask, first: bool, scale: float) -> Drawn:
    masking = Masking(masker)
    call = first and is_urgent(card)
    title = masking(card.title, draw_blocks.HEADER).strip() or card.kind.value
    title = f"Agent asks: {title}" if card.kind is CardKind.APPROVAL else title
    body = masking(card.body, _BODY) if card.body and card.body.strip() else ""
    body = _agents(body) if body and card.kind in AGENTS else body
    room = int(_BODY * scale)
    blocks: list[Block] = []
    if call:
        blocks.append(section(mrkdwn(f"{CALL} {_call(card)}")))
    icon = KINDS[card.kind] if card.prompt_type is None else _PROMPTS[card.prompt_type]
    blocks += [header(f"{icon} {title}"), _facts(card, masking, scale)]
    if body:
        blocks.append(section(plain(body, room)))
    if _has_detail(card):
        blocks.append(context(plain(masking(card.detail or "", _DETAIL), int(_DETAIL * scale))))
    blocks += files(card, masking, scale)
    blocks += remarks(card, masking, scale)
    blocks += change(card, masking, scale)
    if card.note and card.note.strip():
        blocks.append(context(plain(f"ℹ️ {masking(card.note, _NOTE)}", int(_NOTE * scale))))
    if card.away:
        blocks.append(
            context(mrkdwn("💤 agent away: it does not wait any more; your answer reaches it when it is back"))
        )
    blocks += outcome(card, masking, scale)
    blocks += masking.line(card.id, cut=bool(body) and is_cut(body, room))
    blocks += status_lines(card)
    blocks += buttons(card)
    return Drawn(_text(card, title, call), tuple(blocks))


def _agents(text: str) -> str:
    """Mark an agent's text, so that no line of it looks like Intercom's own."""
    lines = text.strip("\n").split("\n")
    return f"From the agent: {lines[0]}" if len(lines) == 1 else "\n│ ".join(["From the agent:", *lines])


def _facts(card: Card, masking: Masking, scale: float) -> Block:
    facts = [f"{RISKS[card.risk]} *{card.risk.value}* risk"] if card.risk else []
    facts.append(f"{card.kind.value} {code(short(card.id), 80)}")
    if card.session_id:
        facts.append(f"session {code(short(card.session_id), 80)}")
    facts.append(code(masking(card.workspace_root, 200), int(200 * scale)))
    if card.expires_at is not None and card.state is CardState.PENDING:
        facts.append(f"⌛ expires {moment(card.expires_at)}")
    return context(mrkdwn(" · ".join(facts)))


def _call(card: Card) -> str:
    if card.kind is CardKind.STALL:
        return "📣 *escalated*: the agent does not react"
    return f"a change of *{card.risk.value}* risk waits" if card.risk else ""


def _has_detail(card: Card) -> bool:
    """Return whether the detail says more: an approval's is a listed path, a policy's is a hash."""
    detail = (card.detail or "").strip()
    return bool(detail) and all(detail != each.path for each in card.files) and card.kind is not CardKind.POLICY


def _text(card: Card, title: str, call: bool) -> str:
    state = "" if card.state is CardState.PENDING else f"{headline(card)}: "
    badge = f"{RISKS[card.risk]} " if card.risk else ""
    text = f"{state}{badge}{card.kind.value}: {title}"
    return f"{CALL} {fitted(text, 300, flat=True)}" if call else fitted(text, 300, flat=True)


def processing(content: dict[str, Any], line: str) -> dict[str, Any]:
    """Return `content` (`text`, `blocks` and other keys) with `line` in place of its buttons, or at its end without
    any. The argument is not changed."""
    blocks: list[Block] = [block for block in content.get("blocks") or () if block.get("type") != "actions"]
    return {**content, "blocks": [*blocks, context(plain(line, 300))]}


# --- sessions and notices --------------------------------------------------------------------------------------------

STATUSES: Final = {
    SessionStatus.CREATED: ("⚪", "starting"),
    SessionStatus.ACTIVE: ("🟢", "active"),
    SessionStatus.PAUSED: ("⏸️", "paused"),
    SessionStatus.INTERRUPTED: ("🔌", "agent away: its connection has ended"),
    SessionStatus.TERMINATED: ("⚫", "ended"),
}
_PROGRESS: Final = {ProgressStatus.DONE: "✅", ProgressStatus.IN_PROGRESS: "🔄", ProgressStatus.PENDING: "▫️"}
_PROGRESS_STEPS = 12
_PROMPT = 1_000


def thread_root(session: Session, masker: Mask) -> Drawn:
    """Return the root message of a session's thread: the agent, its workspace, the mode, and the session's status. It
    shows nothing that changes with every call, so it is rarely redrawn."""
    return drawn_to_fit(partial(_root, session, masker))


def _root(session: Session, masker: Mask, scale: float) -> Drawn:
    masking = Masking(masker)
    icon, status = STATUSES[session.status]
    agent = masking(title_of(session.client_name) or "agent", 100)
    root = masking(session.workspace_root, 300)
    place = root.replace("\\", "/").rstrip("/").rpartition("/")[2] or root
    title = f"{icon} {agent} in {place}"
    facts = {
        "State": status,
        "Mode": session.mode.value,
        "Workspace": code(root, 300),
        "Session": code(short(session.id), 80),
    }
    blocks = [header(title), fields([mrkdwn(f"*{name}*\n{value}") for name, value in facts.items()])]
    if session.prompt and session.prompt.strip():
        blocks.append(section(plain(f"📋 {masking(session.prompt, _PROMPT)}", int(_PROMPT * scale))))
    if items := session.progress_snapshot:
        shown = items[:_PROGRESS_STEPS]
        lines = [f"{_PROGRESS[item.status]} {one_line(masking(item.label, 120)[:120])}" for item in shown]
        if len(items) > _PROGRESS_STEPS:
            lines.append(f"and {len(items) - _PROGRESS_STEPS} more")
        blocks.append(section(plain("\n".join(lines), int(1_200 * scale))))
    ended = "" if session.terminated_at is None else f" · ended {moment(session.terminated_at)}"
    blocks.append(context(mrkdwn(f"🕑 started {moment(session.created_at)}{ended}")))
    blocks += masking.line()
    if session.prompt is not None and session.status is not SessionStatus.TERMINATED:
        # A person started it, and may want to stop it at once.
        blocks.append({"type": "actions", "elements": [button(STOP_SESSION, session.id)]})
    return Drawn(fitted(f"{title}: {status}", 300, flat=True), tuple(blocks))


LEVELS: Final = {"info": "ℹ️", "success": "✅", "warning": "⚠️", "error": "❌"}

_LINE = 2_800


def notice(notice: Notice, masker: Mask) -> Drawn:
    """Draw a notice as one line, with the icon of its level."""
    masking = Masking(masker)
    # Further lines are marked: an agent's text may look like a card.
    told = "\n│ ".join(masking(notice.text, _LINE).strip("\n").split("\n"))
    text = f"{LEVELS.get(notice.level, LEVELS['info'])} {told}"
    return Drawn(fitted(text, 300, flat=True), (section(plain(text, _LINE)), *masking.line()))


def shutdown(pending: int) -> Drawn:
    """Return the shutdown notice. It says that pending requests stay open."""
    text = "🌙 Intercom stops."
    if pending:
        stay = "stays" if pending == 1 else "stay"
        text += f" {amount(pending, 'request')} {stay} open and can be answered once it is back."
    return Drawn(fitted(text, 300), (context(plain(text)),))
