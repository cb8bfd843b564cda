"""The tools about the document of a session: read, update and append."""

from __future__ import annotations

from datetime import datetime

from attrs import field, frozen

from intercom.model.field_docs import doc
from intercom.rooms.tools.evidence import LINKED, UNLINKED
from intercom.rooms.tools.feed import NOTICE
from intercom.rooms.tools.tool import DOCUMENT, MESSAGE_TEXT, SESSION_ID, TEAM_ID, TITLE, RoomTool, Route

_SECTION = "Only this section, by its heading: `## Notes`, or just `Notes`. "

# --- read_session_doc ------------------------------------------------------------------------------------------------


@frozen
class ReadSessionDoc:
    """Read the document."""

    session_id: str = field(metadata=SESSION_ID)
    team_id: str = field(metadata=TEAM_ID)
    version: int | None = field(default=None, metadata=doc("An earlier version. Default: the present one."))
    history: bool = field(
        default=False, metadata=doc("Whether to list the earlier versions too: who wrote them, and when.")
    )


@frozen
class ListedVersion:
    version: int = field(metadata=doc("The number of the version."))
    author: str = field(metadata=doc("The team or person that wrote it."))
    written_at: datetime = field(metadata=doc("When it was written."))


@frozen
class SessionDoc:
    content: str = field(metadata=doc("The document, in markdown; empty if nothing is written yet."))
    version: int = field(metadata=doc("Its version. Pass it as expected_version to update_session_doc."))
    author: str | None = field(default=None, metadata=doc("Who wrote this version; absent for an empty document."))
    written_at: datetime | None = field(default=None, metadata=doc("When; absent for an empty document."))
    history: tuple[ListedVersion, ...] | None = field(
        default=None, metadata=doc("The versions, newest first. Only if you ask for it.")
    )
    notice: str | None = field(default=None, metadata=NOTICE)


READ = RoomTool(
    name="read_session_doc",
    title="Read the document",
    description="""\
Read the shared markdown document of a session: what the teams have worked out so far, with goals, decisions, notes \
and the conclusion. It stays readable after the session is concluded.""",
    takes=ReadSessionDoc,
    result=SessionDoc,
    route=Route("GET", "/api/sessions/{session_id}/doc"),
    handle=lambda service, asked, caller: service.document(asked, caller),
    read_only=True,
    idempotent=True,
)

# --- update_session_doc and append_to_session_doc --------------------------------------------------------------------


@frozen
class DocWritten:
    version: int = field(metadata=doc("The new version of the document."))
    written_at: datetime = field(metadata=doc("When it was written."))
    evidence: tuple[str, ...] | None = field(default=None, metadata=LINKED)
    unlinked: tuple[str, ...] | None = field(default=None, metadata=UNLINKED)


@frozen
class UpdateSessionDoc:
    """Replace the document, or one of its sections."""

    session_id: str = field(metadata=SESSION_ID)
    team_id: str = field(metadata=TEAM_ID)
    content: str = field(metadata=doc("The whole new text, in markdown.", most=DOCUMENT))
    expected_version: int = field(metadata=doc("The version that your text is based on, from read_session_doc."))
    section: str | None = field(
        default=None,
        metadata=doc(
            f"{_SECTION}Then content is the new text of that section, and changes of other sections do not matter."
            " Default: the whole document.",
            min_length=1,
            most=TITLE,
        ),
    )


UPDATE = RoomTool(
    name="update_session_doc",
    title="Replace the document",
    description="""\
Replace the whole document, or one section of it. If another team wrote since expected_version, nothing is written, \
and the error "version_conflict" has the current version and a diff: read the document again, merge your change, and \
retry. To add a paragraph, use append_to_session_doc instead, which cannot conflict. Promote settled notes to ##
Decisions.""",
    takes=UpdateSessionDoc,
    result=DocWritten,
    route=Route("POST", "/api/sessions/{session_id}/doc"),
    handle=lambda service, asked, caller: service.update(asked, caller),
    destructive=True,
)


@frozen
class AppendToSessionDoc:
    """Add text to the document."""

    session_id: str = field(metadata=SESSION_ID)
    team_id: str = field(metadata=TEAM_ID)
    text: str = field(metadata=doc("What to add, in markdown.", min_length=1, most=MESSAGE_TEXT))
    section: str | None = field(
        default=None,
        metadata=doc(
            f"{_SECTION}The text goes to its end; a missing section is added. Default: the end of the document.",
            min_length=1,
            most=TITLE,
        ),
    )


APPEND = RoomTool(
    name="append_to_session_doc",
    title="Add to the document",
    description="""\
Add text to the end of the document, or of one of its sections. No version is needed, and teams that append at the \
same time do not overwrite each other. Use it to record findings and decisions as you go, usually in the section
"Notes".""",
    takes=AppendToSessionDoc,
    result=DocWritten,
    route=Route("POST", "/api/sessions/{session_id}/doc/append"),
    handle=lambda service, asked, caller: service.append(asked, caller),
)
