"""Which row is posted next: the table, and the promises for any queue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.operators.slack.draw import blocks
from intercom.operators.slack.sender import CHARS, LINES, PATIENCE, Choice, choose, merged
from intercom.store.outbox import RowKind, RowState, Urgency, Waiting
from tests.operators.slack.server import text

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)


def row(id: int, urgency: Urgency = Urgency.CARD, thread: str | None = "t", **changes: Any) -> Waiting:
    plain = Waiting(
        id=id,
        kind=RowKind.MESSAGE,
        state=RowState.QUEUED,
        urgency=urgency,
        thread=thread,
        attempts=0,
        not_before=None,
        chars=10,
        lines=1,
    )
    return evolve(plain, **changes)


def log(id: int, **changes: Any) -> Waiting:
    return row(id, Urgency.LOG, **changes)


def lost(id: int, **changes: Any) -> Waiting:
    """One that may be out there, and is to be looked for later."""
    return row(id, state=RowState.POSTING, **{"attempts": 1, "not_before": LATER, **changes})


@pytest.mark.parametrize(
    ("waiting", "choice"),
    [
        ([], None),
        ([row(1), row(2)], Choice(1)),
        ([row(1, not_before=NOW)], Choice(1)),
        ([row(1, not_before=LATER)], None),
        ([row(1, not_before=LATER), row(2)], Choice(2)),
        # what may be out there holds back those behind it, in its thread and of its urgency
        ([lost(1), row(2)], None),
        ([lost(1), row(2, thread="u")], Choice(2)),
        ([lost(1), log(2)], Choice(2)),
        ([lost(1, attempts=PATIENCE + 1), row(2)], Choice(2)),
        ([lost(1, not_before=None), row(2)], Choice(1)),
        # a reply waits for its root
        ([row(2, root_id=1), log(1, thread=None)], Choice(1)),
        ([row(2, root_id=1, root_not_before=LATER), row(3, thread="u")], Choice(3)),
        ([row(2, root_id=1, root_not_before=LATER)], None),
        # lines share a message
        ([log(1), log(2), log(3)], Choice(1, (2, 3))),
        ([row(1, Urgency.LINE), log(2)], Choice(1)),
        ([log(1), log(2, thread="u"), log(3)], Choice(1, (3,))),
        ([log(1, attempts=1), log(2)], Choice(1)),
        # what stands in no thread may be the top of one
        ([log(1, thread=None), log(2, thread=None)], Choice(1)),
        ([log(1), log(2, attempts=1), log(3)], Choice(1)),
        ([log(1), log(2, not_before=LATER), log(3)], Choice(1)),
        ([log(1), log(2, kind=RowKind.FILE), log(3)], Choice(1)),
        ([log(1, kind=RowKind.FILE), log(2)], Choice(1)),
        ([log(1, chars=CHARS), log(2)], Choice(1)),
        ([log(1, chars=CHARS - 11), log(2), log(3)], Choice(1, (2,))),
        ([log(1, lines=LINES), log(2)], Choice(1)),
        ([log(n) for n in range(50)], Choice(0, tuple(range(1, LINES)))),
    ],
)
def test_the_next_row_is_chosen(waiting: list[Waiting], choice: Choice | None) -> None:
    assert choose(waiting, NOW) == choice


def test_no_more_is_read_than_needed() -> None:
    read = []

    def rows() -> Any:
        for number in range(10_000):
            read.append(number)
            yield row(number)

    assert choose(rows(), NOW) == Choice(0)
    assert len(read) == 1


threads = st.sampled_from(["t", "u", None])
times = st.sampled_from([None, NOW, LATER])


@st.composite
def queues(draw: st.DrawFn) -> list[Waiting]:
    """A queue as the store gives it: roots that wait are in it too."""
    rows: list[Waiting] = []
    roots: dict[str, Waiting] = {}
    for name in ("t", "u"):
        if draw(st.booleans()):
            roots[name] = row(len(roots) + 1, draw(st.sampled_from(Urgency)), None, not_before=draw(times))
    rows.extend(roots.values())
    for id in range(10, 10 + draw(st.integers(0, 30))):
        thread = draw(threads)
        root = roots.get(thread or "")
        state = draw(st.sampled_from([RowState.QUEUED, RowState.POSTING]))
        rows.append(
            row(
                id,
                draw(st.sampled_from(Urgency)),
                thread,
                state=state,
                attempts=draw(st.integers(0, PATIENCE + 2)) + (state is RowState.POSTING),
                not_before=draw(times),
                chars=draw(st.integers(0, CHARS)),
                root_id=None if root is None else root.id,
                root_not_before=None if root is None else root.not_before,
            )
        )
    return sorted(rows, key=lambda each: (each.urgency, each.id))


@given(queues())
def test_whatever_waits_the_promises_hold(queue: list[Waiting]) -> None:
    by_id = {each.id: each for each in queue}
    free = [
        each for each in queue if each.not_before != LATER and (each.root_id is None or each.root_not_before != LATER)
    ]
    choice = choose(queue, NOW)
    if choice is None:
        # only what must wait for another that may be out there is left
        for each in free:
            assert any(_holds(other, each) for other in queue)
        return
    chosen = by_id[choice.id]
    assert chosen.not_before != LATER
    assert chosen.root_id is None
    assert not any(_holds(other, chosen) for other in queue) or any(each.root_id == chosen.id for each in queue)
    # nothing that may go is more urgent, nor as urgent and older
    ahead = [each for each in free if not any(_holds(other, each) for other in queue)]
    assert ahead[0] in (chosen, *(each for each in queue if each.root_id == chosen.id))
    # what shares the message is of its kind, in order, and fits; and none of it is passed over
    sharing = [chosen, *(by_id[id] for id in choice.merge)]
    if choice.merge:
        assert {(each.thread, each.urgency, each.attempts) for each in sharing} == {(chosen.thread, chosen.urgency, 0)}
        assert [each.id for each in sharing] == sorted(each.id for each in sharing)
        assert sum(each.chars + 1 for each in sharing) - 1 <= CHARS
        between = [
            each.id
            for each in queue
            if (each.thread, each.urgency) == (chosen.thread, chosen.urgency)
            and chosen.id <= each.id <= choice.merge[-1]
        ]
        assert between == [each.id for each in sharing]


def _holds(other: Waiting, each: Waiting) -> bool:
    return (
        other.id < each.id
        and (other.thread, other.urgency) == (each.thread, each.urgency)
        and other.state is RowState.POSTING
        and other.attempts <= PATIENCE
        and other.not_before == LATER
    )


def test_threads_take_turns_with_their_cards() -> None:
    queue = [*(row(number, thread="flood") for number in range(1, 50)), row(100, thread="other"), log(1000, thread="x")]
    turns: dict[str, int] = {}
    posted = []
    for turn in range(1, 6):
        choice = choose(queue, NOW, turns)
        assert choice is not None
        assert choice.group is not None
        posted.append(choice.id)
        turns[choice.group] = turn
        queue = [each for each in queue if each.id != choice.id]
    # The one that came last waited for one of the flood, and each thread kept its order.
    assert posted == [1, 100, 2, 3, 4]


def test_sessions_take_turns_with_their_cards_in_the_channel_and_the_files_in_their_threads() -> None:
    def asks(id: int, session: str, thread: str | None = None) -> Waiting:
        return row(id, thread=thread, session_id=session)

    queue = [*(asks(number, "flood", None if number % 2 else f"card/{number}") for number in range(1, 50))]
    queue += [asks(100, "other"), asks(101, "other")]
    turns: dict[str, int] = {}
    posted = []
    for _ in range(6):
        choice = choose(queue, NOW, turns)
        assert choice is not None
        posted.append(choice.id)
        turns[choice.group or ""] = len(posted)
        queue = [each for each in queue if each.id != choice.id]
    assert posted == [1, 100, 2, 101, 3, 4]
    # One that may be out there holds back those of its session alone.
    assert choose([lost(1, thread=None, session_id="a"), asks(2, "a"), asks(3, "b")], NOW) == Choice(3)


def test_what_may_be_out_there_holds_back_its_own_thread_alone() -> None:
    queue = [lost(1, thread="t"), row(2, thread="t"), row(3, thread="u")]
    assert choose(queue, NOW, {"t": 1, "u": 2}) == Choice(3)


@given(queues(), st.dictionaries(st.sampled_from(["t", "u"]), st.integers(1, 5)))
def test_turns_change_who_goes_first_and_never_whether_anything_goes(
    queue: list[Waiting], turns: dict[str, int]
) -> None:
    plain, fair = choose(queue, NOW), choose(queue, NOW, turns)
    assert (plain is None) == (fair is None)
    if plain is not None and fair is not None:
        by_id = {each.id: each for each in queue}
        wanted = [each.urgency for each in queue if each.id == plain.id or each.root_id == plain.id]
        chosen = by_id[fair.id]
        assert min(wanted) in [each.urgency for each in queue if each.id == chosen.id or each.root_id == chosen.id]


CONTEXT: dict[str, Any] = {"type": "context", "elements": [{"type": "mrkdwn", "text": "who"}]}


def test_one_message_stays_as_it_is() -> None:
    content = {**text("a"), "reply_broadcast": True}
    assert merged([content]) is content


def test_messages_follow_one_another_as_they_are() -> None:
    with_context = {"text": "b", "blocks": [*text("b")["blocks"], CONTEXT]}
    joined = merged([text("a"), with_context, {"text": "c"}])
    assert joined == {"text": "a\nb\nc", "blocks": [*text("a")["blocks"], *with_context["blocks"]]}


@given(st.lists(st.text(max_size=CHARS), min_size=2, max_size=LINES), st.booleans())
def test_slacks_limits_hold(lines: list[str], with_context: bool) -> None:
    more = [CONTEXT] * 3 if with_context else []
    joined = merged([{"text": line, "blocks": [*text(line)["blocks"], *more]} for line in lines])
    assert len(joined["text"]) <= blocks.TEXT
    assert len(joined["blocks"]) == min(blocks.BLOCKS, len(lines) * (1 + len(more)))
