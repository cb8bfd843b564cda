"""The meaning of Slack's error codes. Pure."""

from __future__ import annotations

from enum import Enum


class Remedy(Enum):
    """What a refusal requires.

    MEND: a person has to change something; until then nothing works in the channel. REDRAW: Slack rejects this content.
    RETHREAD: the thread does not exist. GONE: the message does not exist, or is not ours. LATER: unknown; it may pass.
    """

    MEND = "mend"
    REDRAW = "redraw"
    RETHREAD = "rethread"
    GONE = "gone"
    LATER = "later"


_TOKEN = "run `agent-intercom slack login` again"
_APP = "install the app from `agent-intercom slack manifest` again, then log in again"
_POLICY = "ask an admin of the workspace to let the app post there"

#: Advice for each error that a person can fix.
ADVICE: dict[str, str] = {
    "access_denied": _POLICY,
    "account_inactive": _TOKEN,
    "channel_not_found": "check the channel id in the config, and invite the app to the channel",
    "ekm_access_denied": _POLICY,
    "enterprise_is_restricted": _POLICY,
    "invalid_auth": _TOKEN,
    "is_archived": "unarchive the channel, or choose another",
    "messages_tab_disabled": "choose a channel instead of the app's own messages",
    "missing_scope": _APP,
    "no_permission": _APP,
    "not_allowed_token_type": _APP,
    "not_authed": _TOKEN,
    "not_in_channel": "invite the app to the channel",
    "org_login_required": _POLICY,
    "posting_to_channel_denied": _POLICY,
    "restricted_action": _POLICY,
    "restricted_action_non_threadable_channel": "choose a channel that has threads",
    "restricted_action_read_only_channel": _POLICY,
    "restricted_action_thread_locked": "unlock the thread",
    "restricted_action_thread_only_channel": "choose a channel where messages may stand outside threads",
    "storage_limit_reached": "free storage in the Slack workspace",
    "team_access_not_granted": _POLICY,
    "team_not_found": _TOKEN,
    "token_expired": _TOKEN,
    "token_revoked": _TOKEN,
    "two_factor_setup_required": _POLICY,
}

_OF_THE_CONTENT = frozenset(
    {
        "attachment_payload_limit_exceeded",
        "block_mismatch",
        "blocked_file_type",
        "file_uploads_disabled",
        "invalid_arg_name",
        "invalid_arguments",
        "invalid_array_arg",
        "invalid_attachments",
        "invalid_blocks",
        "invalid_blocks_format",
        "invalid_charset",
        "invalid_form_data",
        "invalid_metadata_format",
        "invalid_metadata_schema",
        "malware_detected",
        "markdown_text_conflict",
        "message_too_long",
        "metadata_too_large",
        "missing_argument",
        "msg_blocks_too_long",
        "msg_too_long",
        "no_text",
        "snippet_too_large",
        "too_many_attachments",
        "unknown_snippet_type",
    }
)

_OF_THE_THREAD = frozenset(
    {"cannot_reply_to_message", "invalid_thread_ts", "invalid_ts", "message_not_found", "thread_not_found"}
)

_OF_THE_MESSAGE = frozenset({"cant_update_message", "edit_window_closed", "invalid_ts", "message_not_found"})


def remedy(error: str, *, updating: bool) -> Remedy:
    """Return the remedy if Slack answers a post, or an update, with `error`."""
    if error in ADVICE:
        return Remedy.MEND
    if error in _OF_THE_CONTENT:
        return Remedy.REDRAW
    if updating and error in _OF_THE_MESSAGE:
        return Remedy.GONE
    if not updating and error in _OF_THE_THREAD:
        return Remedy.RETHREAD
    return Remedy.LATER


def sentence(error: str, channel: str) -> str:
    """Return the problem in `channel` and its remedy, for people."""
    advice = ADVICE.get(error, "it is tried again every minute")
    return f"slack takes nothing in channel {channel} ({error}); {advice}"
