"""The buttons of each kind of card; their action ids identify the button actions."""

from __future__ import annotations

from typing import Final

from intercom.model.card import Card, CardKind, CardState
from intercom.operators.slack.draw.blocks import DANGER, PRIMARY, Block, actions, button, confirmed

#: For each kind of card: label, action id, style.
BUTTONS: Final[dict[CardKind, tuple[tuple[str, str, str | None], ...]]] = {
    CardKind.APPROVAL: (("✅ Accept", "approve_accept", PRIMARY), ("❌ Reject", "approve_reject", DANGER)),
    CardKind.PROMPT: (
        ("▶️ Continue", "prompt_continue", PRIMARY),
        ("✏️ Refine", "prompt_refine", None),
        ("🛑 Stop", "prompt_stop", DANGER),
    ),
    CardKind.STANDBY: (
        ("▶️ Resume", "wait_resume", PRIMARY),
        ("✏️ Resume with instructions", "wait_resume_instruct", None),
        ("🛑 Stop", "wait_stop", DANGER),
    ),
    CardKind.STALL: (
        ("👉 Nudge", "stall_nudge", PRIMARY),
        ("✏️ Nudge with instructions", "stall_nudge_instruct", None),
        ("🛑 Stop", "stall_stop", DANGER),
        ("Dismiss", "stall_dismiss", None),
    ),
    CardKind.POLICY: (("✅ Accept", "policy_accept", PRIMARY), ("❌ Reject", "policy_reject", DANGER)),
    CardKind.APPLY: (("Dismiss", "apply_dismiss", None),),
    CardKind.STEER: (),
    CardKind.TASK: (),
    CardKind.RESTORE: (("♻️ Proceed", "restore_proceed", DANGER), ("✖️ Cancel", "restore_cancel", None)),
}

#: The confirmation of a button: title, text, and the label that confirms.
CONFIRMED: Final[dict[str, tuple[str, str, str]]] = {
    "restore_proceed": (
        "Go back?",
        "The session ends, and another goes on from the checkpoint. How things are now is kept as a checkpoint, too.",
        "Proceed",
    ),
}


def buttons(card: Card) -> list[Block]:
    """Return the block with the card's buttons, as a list; empty unless the card is pending and has buttons."""
    if card.state is not CardState.PENDING or not BUTTONS[card.kind]:
        return []
    drawn = [button(label, action_id, card.id, style) for label, action_id, style in BUTTONS[card.kind]]
    return [actions(confirmed(each, *words) if (words := CONFIRMED.get(each["action_id"])) else each for each in drawn)]
