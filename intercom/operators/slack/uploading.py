"""The upload of a file: get an address, send the bytes, and share the file in a channel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from intercom.model.outbox import Row
from intercom.operators.slack import outgoing
from intercom.operators.slack.errors import SlackRefused, Unreachable
from intercom.operators.slack.refusals import Remedy, remedy
from intercom.operators.slack.wire import Web

Keep = Callable[[str | None], Awaitable[object]]


async def share(web: Web, row: Row, thread_ts: str | None, keep: Keep) -> str | None:
    """Share the file of `row` once; return the ts of its message if Slack reports it.

    The upload's id is passed to `keep` before the file is shared. A row with an id may be shared already: then Slack is
    asked first. Raises as `Web.call` does.
    """
    if row.file_id is not None:
        try:
            shared, ts = await _shared(web, row, row.file_id)
            if shared:
                return ts
            return await _complete(web, row, row.file_id, thread_ts)
        except SlackRefused as refused:
            if remedy(refused.error, updating=False) is not Remedy.LATER:
                raise
            # the upload no longer exists or is broken
            await keep(None)
    file_id = await _uploaded(web, row, typed=True)
    await keep(file_id)
    return await _complete(web, row, file_id, thread_ts)


async def _uploaded(web: Web, row: Row, *, typed: bool) -> str:
    content = row.content
    filename = str(content["filename"])
    # Slack rejects an empty file
    data = str(content["text"]).encode("utf-8", "replace") or b"\n"
    # Masked before the upload, because Slack needs the final length first.
    data = (await outgoing.masked(data.decode())).encode()
    snippet_type = content.get("snippet_type") if typed else None
    try:
        place = await web.call(
            "files.getUploadURLExternal", filename=filename, length=len(data), snippet_type=snippet_type
        )
    except SlackRefused as refused:
        if snippet_type is None or remedy(refused.error, updating=False) is not Remedy.REDRAW:
            raise
        return await _uploaded(web, row, typed=False)
    url, file_id = place.get("upload_url"), place.get("file_id")
    if not isinstance(url, str) or not isinstance(file_id, str):
        raise Unreachable("slack gave no place to upload a file to", maybe_done=False)
    try:
        await web.upload(url, data, filename)
    except Unreachable as lost:
        # an upload that is not shared is visible to nobody
        raise Unreachable(str(lost), maybe_done=False) from lost
    return file_id


async def _complete(web: Web, row: Row, file_id: str, thread_ts: str | None) -> str | None:
    title = str(row.content.get("title") or row.content.get("filename") or "")
    answer = await web.call(
        "files.completeUploadExternal",
        files=[{"id": file_id, "title": title}],
        channel_id=row.channel,
        thread_ts=thread_ts,
    )
    files = answer.get("files") or ()
    return _ts(files[0], row.channel) if files else None


async def _shared(web: Web, row: Row, file_id: str) -> tuple[bool, str | None]:
    file: dict[str, Any] = (await web.call("files.info", file=file_id)).get("file") or {}
    ts = _ts(file, row.channel)
    places = [place for kind in ("channels", "groups", "ims") for place in file.get(kind) or ()]
    return ts is not None or row.channel in places, ts


def _ts(file: dict[str, Any], channel: str) -> str | None:
    for shares in (file.get("shares") or {}).values():
        for share in shares.get(channel) or ():
            if isinstance(share.get("ts"), str):
                return str(share["ts"])
    return None
