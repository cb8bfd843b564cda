"""Compares a checkpoint with its workspace, and plans its restore. Its functions run in worker threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from attrs import frozen

from intercom.model.checkpoint import Checkpoint, Divergence, DivergenceKind
from intercom.model.manifest import Manifest
from intercom.model.restore import DivergenceSummary, Files
from intercom.sessions.archive import Archive
from intercom.sessions.checkpoint_taking import told_of
from intercom.store.contents import Held
from intercom.workspace import diverging, ignoring, put_back_plan, putting_back
from intercom.workspace.put_back_plan import PutBack, PutBackPlan
from intercom.workspace.snapshot import Keeper, snapshot
from intercom.workspace.walking import Enough

#: How many diverged files are kept and shown by name, and how many of anything else.
SHOWN = 100
_NAMED = 5


@frozen
class Compared:
    """The result of a comparison. `digest` identifies what was found, `steps` restore the files as requested, and `now`
    is the workspace as found. `lost` are the files that the steps overwrite or remove without a stored copy."""

    summary: DivergenceSummary
    digest: str
    steps: tuple[PutBack, ...]
    now: Manifest
    lost: tuple[str, ...]


class _Weighed:
    """Stores nothing, and reports every content as stored."""

    def keep(self, hash: str, data: bytes) -> bool:
        return True


def compare(archive: Archive, checkpoint: Checkpoint, files: Files, *, keep: bool) -> Compared:
    """Compare the workspace with the checkpoint. `keep` stores the workspace's contents, which are on disk on return.
    Raises FileError if the workspace is gone, DatabaseError if contents cannot be written."""
    then = checkpoint.manifest
    with archive.contents.open() as held:
        keeper: Keeper | None = None
        if archive.settings.keep_contents:
            keeper = held if keep else _Weighed()
        now = snapshot(Path(checkpoint.workspace_root), archive.limits, keeper, also=then.files)
        found, certain = _found(then, now, held, _hurry(archive.limits.max_seconds))
        plan = PutBackPlan((), ())
        if files is not Files.LEAVE:
            wanted = {then.files[each.path].hash for each in found if each.path in then.files}
            plan = put_back_plan.plan(then, now, found, held.missing(wanted), exact=files is Files.EXACT)
            plan = putting_back.possible(Path(checkpoint.workspace_root), plan)
    lost = tuple(step.path for step in plan.steps if step.path in now.files and not _is_safe(now, step.path))
    summary = _summary(found, _remarks(then, now, found, plan, files, archive, lost, certain=certain))
    remarked = [*(f"lost {path}" for path in lost), *(f"stays {each.path}" for each in plan.blocked)]
    return Compared(summary, diverging.digest(found, now, remarked), plan.steps, now, lost)


def _found(then: Manifest, now: Manifest, held: Held, hurry: Callable[[], None]) -> tuple[list[Divergence], bool]:
    """Return the divergences, and whether the added files are certain. They are not once `hurry` raises Enough."""
    found = diverging.divergences(then, now)
    if not any(each.path.rpartition("/")[2] == ".gitignore" for each in found):
        return found, then.whole
    # The ignore rules have changed: a file may have been there before, ignored.
    with suppress(Enough):
        rules = diverging.rules_of(then, held.read, hurry)
        if rules is not None:
            ignored = partial(ignoring.ignored_by, rules, hurry=hurry)
            return diverging.divergences(then, now, ignored), then.whole
    return [each for each in found if each.kind is not DivergenceKind.ADDED], False


def _hurry(seconds: float) -> Callable[[], None]:
    """Return a function that raises Enough after this many seconds. An agent may write many ignore rules."""
    until = time.monotonic() + seconds

    def hurry() -> None:
        if time.monotonic() > until:
            raise Enough(f"the limit of {seconds:g} seconds was reached")

    return hurry


def _summary(found: Sequence[Divergence], remarks: tuple[str, ...]) -> DivergenceSummary:
    counts = {kind: sum(each.kind is kind for each in found) for kind in DivergenceKind}
    return DivergenceSummary(
        counts[DivergenceKind.MODIFIED],
        counts[DivergenceKind.DELETED],
        counts[DivergenceKind.ADDED],
        tuple(found[:SHOWN]),
        remarks,
    )


def _remarks(
    then: Manifest,
    now: Manifest,
    found: Sequence[Divergence],
    plan: PutBackPlan,
    files: Files,
    archive: Archive,
    lost: Sequence[str],
    *,
    certain: bool,
) -> tuple[str, ...]:
    told = [f"not in the checkpoint: {told_of(each)}" for each in then.left_out if not each.why.startswith("contents")]
    if not certain:
        told.append("what was added since can not be told for certain, and is left out")
    elif not now.whole:
        told.append("not every file was looked at now, so more may have been added")
    if now.unclear:
        told.append(f"not compared, as they can not be read now: {_named(sorted(now.unclear))}")
    if files is Files.LEAVE:
        return tuple(told)
    if plan.blocked:
        whys = [f"{each.path} ({each.why})" for each in plan.blocked]
        told.append(f"can not be put back: {_named(whys)}")
    if lost and not archive.settings.keep_contents:
        told.append("contents are not kept here: what is overwritten or removed can not be brought back")
    elif lost:
        why = "too large to be kept, or there is no room to keep them"
        told.append(f"{why}, so what they hold now can not be brought back: {_named(lost)}")
    return tuple(told)


def _is_safe(now: Manifest, path: str) -> bool:
    state = now.files[path]
    return state.kept or state.link is not None


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
