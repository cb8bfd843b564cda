"""What the pictures show: a little story about a shop, drawn by the code that draws for Slack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from attrs import evolve, frozen

from intercom.masking import Masker
from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.card_hunks import hunks_of
from intercom.model.decision import Decided
from intercom.model.request import ChangeKind, FileChange, PromptType, RiskLevel
from intercom.model.session import ProgressItem, ProgressStatus, Session, SessionMode, SessionStatus
from intercom.operators.slack.amendment_forms import draw_changes, draw_edit, draw_hunks
from intercom.operators.slack.button_actions import draw_form
from intercom.operators.slack.buttons import BY_ACTION
from intercom.operators.slack.commands.runner import Runs, build
from intercom.operators.slack.commands.slash_command_table import TITLES
from intercom.operators.slack.draw import answers, cards
from intercom.operators.slack.draw.blocks import Drawn, FileDrawn
from intercom.operators.slack.draw.cards import processing
from intercom.sessions.amendments import AmendedCard
from tests.slack_standin import ALICE

MASKER = Masker()
SESSION: Final = "35e3e622-e2f5-42d9-9700-31f82b33430a"
ROOT: Final = "/home/alice/shop"

_DIFF = '''\
diff --git a/src/cart.py b/src/cart.py
--- a/src/cart.py
+++ b/src/cart.py
@@ -1,2 +1,3 @@
 def total(items):
-    return sum(i.price for i in items)
+    """The price of all, each as often as it was put in."""
+    return sum(i.price * i.count for i in items)
'''
_TWO_HUNKS = (
    _DIFF
    + """\
@@ -40,2 +41,2 @@ def checkout(cart):
     pay(total(cart.items))
-    send_receipt(cart.customer)
+    send_receipt(cart.customer, retries=10)
"""
)
_SECRET = """\
diff --git a/deploy.env b/deploy.env
--- a/deploy.env
+++ b/deploy.env
@@ -1 +1,2 @@
 REGION=eu-central-1
+AWS_SECRET_ACCESS_KEY={key}
"""
#: Made up, and put together here so that no scanner takes it for one that was lost.
_KEY = "".join(reversed("24QYEKZZazCYiRfxPb/GNED/7K/IMEFtUnrXlaJw"))
_MIGRATION = """\
-- Carts get a table of their own.
create table cart (
    id integer primary key,
    customer integer not null references customer (id),
    opened_at text not null,
    closed_at text
);

create table cart_item (
    cart integer not null references cart (id),
    product integer not null references product (id),
    count integer not null check (count > 0),
    price integer not null,
    primary key (cart, product)
);

insert into cart (id, customer, opened_at) select id, customer, at from basket;
insert into cart_item select basket, product, 1, price from basket_line;
drop table basket_line;
drop table basket;
"""
_TREE = """\
./
├── README.md
├── db/
│   └── 0007_carts.sql
└── src/
    ├── cart.py
    └── reports.py
"""


@frozen
class Scene:
    """What one picture shows: messages, the file beside the first of them, or a form and the button it opens from.
    `ephemeral` are the messages to one person alone."""

    messages: tuple[Drawn, ...]
    file: FileDrawn | None = None
    modal: tuple[str, Mapping[str, Any]] | None = None
    ephemeral: bool = False
    dark: bool = False


def _now() -> datetime:
    return datetime.now(UTC)


def _card(kind: CardKind, id: str, title: str, **more: Any) -> Card:
    return Card(f"{id}-5b1d-4c7e-9a4f-0e9d4d6c2b11", kind, SESSION, ROOT, title, _now(), **more)


def _approval() -> Card:
    return _card(
        CardKind.APPROVAL,
        "947a0b9c",
        "Count each item in the cart's total",
        body="The total forgot how many there are of each item.",
        risk=RiskLevel.LOW,
        files=(FileChange("src/cart.py", ChangeKind.WRITE, "a", "b", added=2, removed=1),),
        diff=_DIFF,
        expires_at=_now() + timedelta(hours=1),
        amendable=True,
    )


def _two_hunks() -> Card:
    files = (FileChange("src/cart.py", ChangeKind.WRITE, "a", "b", added=3, removed=2),)
    return evolve(_approval(), diff=_TWO_HUNKS, files=files)


def _migration() -> Card:
    sql = _MIGRATION.splitlines()
    return _card(
        CardKind.APPROVAL,
        "9d3a1db5",
        "Move the carts to a table of their own",
        body="It cannot be undone without last night's backup.",
        risk=RiskLevel.HIGH,
        files=(FileChange("db/0007_carts.sql", ChangeKind.CREATE, "new_file", "b", added=len(sql)),),
        diff="diff --git a/db/0007_carts.sql b/db/0007_carts.sql\n"
        f"--- /dev/null\n+++ b/db/0007_carts.sql\n@@ -0,0 +1,{len(sql)} @@\n" + "".join(f"+{one}\n" for one in sql),
        expires_at=_now() + timedelta(hours=1),
        amendable=True,
    )


def _prompt() -> Card:
    return _card(
        CardKind.PROMPT,
        "f4e4cb31",
        "Shall I go on?",
        body="The tests pass. Two reports use the old total(). Shall I change them as well?",
        detail="running for 21 min, 14 actions taken",
        prompt_type=PromptType.CONTINUATION,
        expires_at=_now() + timedelta(minutes=30),
    )


def _decided(decision: str, text: str | None = None, channel: str = "slack") -> Decided:
    return Decided("v", decision, f"alice ({ALICE})", channel, _now(), text)


def _drawn(card: Card) -> Drawn:
    return cards.card(card, MASKER, first=card.state is CardState.PENDING)


def approval() -> Scene:
    return Scene((_drawn(_approval()),))


def approval_dark() -> Scene:
    return evolve(approval(), dark=True)


def processing_() -> Scene:
    content = processing(_drawn(_approval()).content(), "⏳ Processing… (alice)")
    return Scene((Drawn(content["text"], tuple(content["blocks"])),))


def applied() -> Scene:
    return Scene((_drawn(evolve(_approval(), state=CardState.APPLIED, decided=_decided("approve"))),))


def approval_file() -> Scene:
    card = _migration()
    return Scene((_drawn(card),), cards.diff_file(card, MASKER))


def rejected() -> Scene:
    why = _decided("reject", "Not before the backup was tried out.")
    return Scene((_drawn(evolve(_migration(), state=CardState.REJECTED, decided=why)),))


def masked() -> Scene:
    entry = FileChange("deploy.env", ChangeKind.WRITE, "a", "b", added=1)
    card = evolve(_approval(), title="Say how to log in", body=None, risk=RiskLevel.CRITICAL, files=(entry,))
    return Scene((_drawn(evolve(card, diff=_SECRET.format(key=_KEY))),))


def prompt() -> Scene:
    return Scene((_drawn(_prompt()),))


def unanswered() -> Scene:
    ended = _decided("continue", channel="timeout")
    card = evolve(_prompt(), state=CardState.EXPIRED, decided=ended)
    told = 'nobody answered "Shall I go on?" in time: the agent is told to continue, and that nobody consented'
    return Scene((_drawn(card), cards.notice(Notice(told, "warning", _now()), MASKER)))


def standby() -> Scene:
    card = _card(CardKind.STANDBY, "c1d2e3f4", "Waits for work", body="The cart is done. What next?")
    return Scene((_drawn(card),))


def stall() -> Scene:
    steps = "done: Read the code\nin progress: Fix the total\npending: Write tests"
    title = "Still quiet after 3 nudges"
    card = _card(CardKind.STALL, "b4a631ee", title, body=steps, detail="last tool: check_diff", escalated=True)
    return Scene((cards.card(card, MASKER), cards.escalation(card, MASKER)))


def policy() -> Scene:
    card = Card(
        "policy-0b82a62096ca9c54",
        CardKind.POLICY,
        "",
        ROOT,
        "The policy file grants more than before",
        _now(),
        body='command added: "make *"',
        diff='{"enabled": true, "commands": ["git status", "make *"]}\n',
    )
    return Scene((_drawn(card),))


def broadcasts() -> Scene:
    told = (
        ("info", "Reading src/cart.py"),
        ("success", "All 214 tests pass"),
        ("warning", "The cache cannot be reached; going on without it"),
        ("error", "The build failed:\ncart.py:3: unexpected indent"),
    )
    return Scene(tuple(cards.notice(Notice(text, level, _now()), MASKER) for level, text in told))


def session() -> Scene:
    steps = (("Read the code", "done"), ("Fix the total", "in_progress"), ("Write tests", "pending"))
    progress = tuple(ProgressItem(label, ProgressStatus(status)) for label, status in steps)
    at_work = Session(
        id=SESSION,
        owner_user_id="",
        workspace_root=ROOT,
        status=SessionStatus.ACTIVE,
        mode=SessionMode.HYBRID,
        created_at=_now(),
        updated_at=_now(),
        client_name="codex",
        prompt="Count each item in the cart's total, and test it.",
        progress_snapshot=progress,
    )
    return Scene((cards.thread_root(at_work, MASKER),))


def commands() -> Scene:
    groups = build({"test": "make test"}, Runs()).categories()
    return Scene((answers.command_help(groups, TITLES),), ephemeral=True)


def tree() -> Scene:
    drawn, _ = answers.tree(".", _TREE.rstrip(), 2, 4, 3, MASKER)
    return Scene((drawn,))


def hunks_form() -> Scene:
    card = _two_hunks()
    found = AmendedCard(card, hunks_of(card.diff or "", card.files), None, {})
    return Scene((_drawn(card),), modal=("approve_hunks", draw_hunks(found, "{}", MASKER)))


def edit_form() -> Scene:
    card = _migration()
    found = AmendedCard(card, hunks_of(card.diff or "", card.files), None, {card.files[0].path: _MIGRATION})
    return Scene((_drawn(card),), modal=("approve_edit", draw_edit(found, "{}", MASKER)))


def changes_form() -> Scene:
    card = _two_hunks()
    return Scene((_drawn(card),), modal=("approve_changes", draw_changes(card, "{}", MASKER)))


def reject_form() -> Scene:
    card = _migration()
    return _form("approve_reject", card)


def refine_form() -> Scene:
    card = _prompt()
    return _form("prompt_refine", card)


def _form(action: str, card: Card) -> Scene:
    form = BY_ACTION[action].form
    assert form is not None
    return Scene((_drawn(card),), modal=(action, draw_form(form, card, "{}", MASKER)))


#: The pictures by name.
SCENES: Final[dict[str, Callable[[], Scene]]] = {
    "session": session,
    "approval": approval,
    "approval-dark": approval_dark,
    "approval-file": approval_file,
    "processing": processing_,
    "applied": applied,
    "rejected": rejected,
    "masked": masked,
    "prompt": prompt,
    "unanswered": unanswered,
    "standby": standby,
    "stall": stall,
    "policy": policy,
    "broadcasts": broadcasts,
    "help": commands,
    "tree": tree,
    "hunks-form": hunks_form,
    "edit-form": edit_form,
    "changes-form": changes_form,
    "reject-form": reject_form,
    "refine-form": refine_form,
}
