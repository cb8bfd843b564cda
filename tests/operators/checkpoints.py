"""A stand-in for the desk's checkpoints: lines and restores in dicts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from attrs import evolve

from intercom.model.checkpoint import (
    CheckpointLine,
    CheckpointTaken,
    Divergence,
    DivergenceKind,
    DivergenceSummary,
    Files,
    LeftOut,
    Restore,
    RestoreState,
)
from intercom.model.errors import InvalidState, NotFound


class StandInCheckpoints:
    """What it was asked to do stands in the desk's `acts`; a restore that is proceeded with is `end` at once."""

    def __init__(self, desk: Any) -> None:
        self._desk = desk
        self.lines: dict[str, CheckpointLine] = {}
        self.restores: dict[str, Restore] = {}
        self.end = RestoreState.DONE
        self.instead: dict[str, Any] | None = None

    async def take(
        self, session: str | None, label: str | None, by: str, channel: str, act_id: str | None = None
    ) -> CheckpointTaken:
        found = await self._desk.find(session)
        self._desk.acts.append(("checkpoint", found.id, label, by, channel))
        at = found.created_at + timedelta(seconds=len(self.lines))
        line = CheckpointLine(f"c-{len(self.lines) + 1}", found.id, found.workspace_root, at, label, 3, 42, 2)
        self.lines[line.id] = line
        return CheckpointTaken(line, (LeftOut("files that cannot be read", 1, ("secret",)),))

    async def listed(self, session: str | None = None) -> tuple[CheckpointLine, ...]:
        found = [each for each in self.lines.values() if session in (None, each.session_id)]
        return tuple(reversed(found))

    async def checkpoint(self, prefix: str) -> CheckpointLine:
        for line in self.lines.values():
            if line.id.startswith(prefix):
                return line
        raise NotFound(f"no checkpoint has an id that begins with {prefix!r}")

    async def ask_restore(
        self, checkpoint: str, files: Files, by: str, channel: str, act_id: str | None = None
    ) -> Restore:
        line = await self.checkpoint(checkpoint)
        self._desk.acts.append(("restore", line.id, files.value, by, channel))
        if files is Files.LEAVE:
            raise InvalidState(
                "nothing was changed: the files would stay as they are, and the session would end",
                label=line.label,
                checkpoint_id=line.id,
                workspace_root=line.workspace_root,
                modified=1,
                deleted=0,
                added=1,
                remarks=["a remark"],
                diverged=[{"path": "a.txt", "kind": "modified"}, {"path": "new\x1b.txt", "kind": "added"}],
            )
        first = (Divergence("a.txt", DivergenceKind.MODIFIED), Divergence("new\x1b.txt", DivergenceKind.ADDED))
        made = Restore(
            id=f"restore-{len(self.restores) + 1}",
            checkpoint_id=line.id,
            session_id=line.session_id,
            successor_id="s-next",
            safety_id="c-before",
            workspace_root=line.workspace_root,
            state=RestoreState.ASKED,
            files=files,
            asked_by=by,
            asked_via=channel,
            created_at=line.created_at,
            updated_at=line.created_at,
            label=line.label,
            divergence=DivergenceSummary(1, 0, 1, first, ("a remark",)),
        )
        self.restores[made.id] = made
        self._desk.show_restore(made)
        return made

    async def restore(self, id: str) -> Restore:
        found = self.restores.get(id)
        if found is None:
            raise NotFound(f"no restore has the id {id!r}", code="request_not_found")
        return found

    def decided(self, id: str, proceed: bool) -> None:
        """A verdict came for the card of this restore; with `instead`, only after another took its place."""
        if self.instead is not None:
            other = evolve(self.restores[id], id=f"restore-{len(self.restores) + 1}", **self.instead)
            self.restores[other.id], self.instead = other, None
            self._desk.show_restore(other)
            note = f"asked again as {other.id}"
            self.restores[id] = evolve(self.restores[id], state=RestoreState.OUTDATED, note=note)
            return
        state = self.end if proceed else RestoreState.CANCELLED
        if id in self.restores:
            # A test may show a restore's card that nobody has asked for here.
            self.restores[id] = evolve(self.restores[id], state=state, note=f"it is {state.value}")
