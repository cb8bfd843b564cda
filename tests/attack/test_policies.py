"""A policy that no person accepted lets nothing pass: tries to have one count all the same, with an operator key and
without one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from attrs import define, evolve

from intercom.local import operator_keys
from intercom.model.card import Card, CardKind
from intercom.model.decision import Decision
from intercom.model.errors import IntercomError, SignatureRefused
from intercom.sessions.tools.auto_check import AutoCheck, CheckContext
from tests.support.keys import Key
from tests.support.virtual_server import VirtualServer, virtual_server

Clock = trio.testing.MockClock

#: What a person has accepted, and what the agent would like to have.
NARROW = {"enabled": True, "file_patterns": {"write": ["docs/**"]}}
WIDE = {"enabled": True, "commands": ["*"], "file_patterns": {"write": ["docs/**", "**"]}}
#: A file that only the second grants.
WANTED = "src/a.py"


@define
class Stage:
    """A workspace whose policy NARROW a person has accepted, and the server's directory around it."""

    server: VirtualServer
    home: Path
    root: Path
    key: Key | None

    def write(self, policy: Any, root: Path | None = None, directory: str = ".intercom") -> Path:
        file = (root or self.root) / directory / "settings.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(policy if isinstance(policy, str) else json.dumps(policy))
        return file

    async def passes(self, root: Path | None = None, path: str = WANTED) -> bool:
        """Whether an agent in this workspace may write the file without a person."""
        agent = await self.server.arrive(root or self.root, f"agent of {root or self.root}")
        try:
            checked = (await agent.ask(AutoCheck("write", CheckContext(path)))).answer.auto_approved
            # Another each time, also after a restart: the same change, or call, asked again is the same request.
            proposed = (await agent.propose(path, f"{uuid.uuid4()}\n", call=uuid.uuid4().hex)).answered
        except IntercomError:
            return False
        assert checked is (proposed is not None and proposed.answer.status == "approved")
        return checked

    async def decide(self, decision: Decision, root: Path | None = None) -> Card:
        """A person's decision about the policy as it stands, signed if they have a key."""
        shown = await self.server.app.service.policy(str(root or self.root))
        assert shown.request_id is not None
        card = Card(
            shown.request_id,
            CardKind.POLICY,
            "",
            shown.workspace_root,
            "",
            self.server.now(),
            detail=shown.sha256,
            diff=shown.text,
        )
        verdict = (
            self.server.verdict(decision) if self.key is None else self.key.verdict(card, decision, self.server.now())
        )
        return await self.server.app.service.decide_policy(str(root or self.root), verdict)

    def sql(self, statement: str, *values: Any) -> None:
        """What any process of this user can do."""
        with contextlib.closing(sqlite3.connect(self.server.app.database)) as db:
            assert db.execute(statement, values).rowcount >= 1
            db.commit()

    def accepted_by_hand(self, root: Path, text: str) -> None:
        """An acceptance that no person gave, in the database."""
        self.sql(
            "insert into policy_decision (id, workspace_root, sha, text, accepted, verdict_id, verdict, decided_by,"
            " decided_via, decided_at) values ('policy-00', ?, ?, ?, 1, 'v', 'accept', 'kim', 'ctl', ?)",
            str(root),
            hashlib.sha256(text.encode()).hexdigest(),
            text,
            "2026-01-01T00:00:00.000000+00:00",
        )


@contextlib.asynccontextmanager
async def staged(home: Path, clock: Clock, key: Key | None) -> AsyncIterator[Stage]:
    root = home / "ws"
    is_new = not root.exists()
    (root / "docs").mkdir(parents=True, exist_ok=True)
    async with virtual_server(home, clock) as server:
        if key is not None and not server.app.signatures.required:
            operator_keys.add_public(server.app.places, key.public)
            await server.app.service.add_key(key.public, *key.for_key("add", key.public, server.now()))
        stage = Stage(server, home, root, key)
        if is_new:
            stage.write(NARROW)
            await stage.decide(Decision.ACCEPT)
        yield stage


Try = Callable[[Stage], Awaitable[Path | None]]
TRIES: dict[str, Try] = {}
#: Tries of whoever may write the database: only a key stops them.
WITH_KEY: dict[str, Try] = {}


def attempt(given: Try) -> Try:
    """A try: it prepares, and returns the workspace that the agent then works in."""
    TRIES[given.__name__] = given
    return given


def attempt_with_key(given: Try) -> Try:
    WITH_KEY[given.__name__] = given
    return given


@attempt
async def a_clone_brings_one(stage: Stage) -> Path:
    clone = stage.home / "clone"
    stage.write(WIDE, clone)
    return clone


@attempt
async def it_is_written_before_the_first_call(stage: Stage) -> None:
    stage.write(WIDE)


@attempt
async def it_is_written_under_a_live_agent(stage: Stage) -> None:
    await stage.passes()
    stage.write(WIDE)


@attempt
async def it_is_written_when_no_agent_is_there(stage: Stage) -> None:
    await stage.passes()
    stage.server.gone(f"agent of {stage.root}", for_good=True)
    await stage.server.later(1)
    stage.write(WIDE)


@attempt
async def a_nested_directory_is_the_workspace(stage: Stage) -> Path:
    stage.write(WIDE, stage.root / "sub")
    return stage.root / "sub"


@attempt
async def the_accepted_content_lies_in_a_nested_directory_too(stage: Stage) -> Path:
    stage.write(NARROW, stage.root / "docs")
    (stage.root / "docs" / "docs").mkdir()
    assert not await stage.passes(stage.root / "docs", "docs/a")
    return stage.root / "docs"


@attempt
async def the_parent_directory_is_the_workspace(stage: Stage) -> Path:
    (stage.home / "outer").mkdir()
    stage.write(WIDE, stage.home / "outer")
    (stage.home / "outer" / "ws").symlink_to(stage.root)
    return stage.home / "outer"


@attempt
async def a_link_leads_to_the_workspace(stage: Stage) -> Path:
    (stage.home / "link").symlink_to(stage.root)
    stage.write(WIDE)
    return stage.home / "link"


@attempt
async def the_directory_becomes_a_link(stage: Stage) -> None:
    await stage.passes()
    other = stage.home / "other"
    stage.root.rename(other)
    stage.write(WIDE, other)
    stage.root.symlink_to(other)


@attempt
async def another_directory_takes_its_place(stage: Stage) -> None:
    await stage.passes()
    stage.root.rename(stage.home / "away")
    stage.write(WIDE)


@attempt
async def the_older_file_takes_over(stage: Stage) -> None:
    stage.write(WIDE, directory=".monocoque")
    shutil.rmtree(stage.root / ".intercom")


@attempt
async def the_policys_directory_is_a_link_to_the_older_one(stage: Stage) -> None:
    stage.write(WIDE, directory=".monocoque")
    shutil.rmtree(stage.root / ".intercom")
    (stage.root / ".intercom").symlink_to(".monocoque")


@attempt
async def the_file_is_a_link_to_one_beside_it(stage: Stage) -> None:
    await stage.passes()
    file = stage.root / ".intercom" / "settings.json"
    (file.parent / "real.json").write_text(json.dumps(WIDE))
    file.unlink()
    file.symlink_to("real.json")


@attempt
async def the_file_is_a_link_to_where_agents_may_write(stage: Stage) -> None:
    file = stage.root / ".intercom" / "settings.json"
    (stage.root / "docs" / "x.json").write_text(json.dumps(WIDE))
    file.unlink()
    file.symlink_to("../docs/x.json")


@attempt
async def the_file_shares_its_bytes_with_one_that_agents_may_write(stage: Stage) -> None:
    file = stage.root / ".intercom" / "settings.json"
    (stage.root / "docs" / "x.json").hardlink_to(file)
    await stage.passes()
    (stage.root / "docs" / "x.json").write_text(json.dumps(WIDE))


@attempt
async def its_size_and_times_stay_the_same(stage: Stage) -> None:
    other = {"enabled": True, "file_patterns": {"write": ["src/**"]}}
    file = stage.write({"enabled": True, "file_patterns": {"write": ["doc/**"]}})
    await stage.decide(Decision.ACCEPT)
    await stage.passes()
    before = file.stat()
    with file.open("r+") as opened:
        opened.write(json.dumps(other))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@attempt
async def an_older_accepted_content_comes_back(stage: Stage) -> None:
    stage.write(WIDE)
    await stage.decide(Decision.ACCEPT)
    stage.write(NARROW)
    await stage.passes()
    stage.write({**NARROW, "tools": ["transmit"]})
    await stage.decide(Decision.ACCEPT)
    stage.write(WIDE)


@attempt
async def a_rule_that_was_taken_out_comes_back(stage: Stage) -> None:
    stage.write(WIDE)
    await stage.decide(Decision.ACCEPT)
    assert await stage.passes()
    stage.write(NARROW)
    assert not await stage.passes()
    stage.write(WIDE)


@attempt
async def the_file_goes_and_comes_back(stage: Stage) -> None:
    file = stage.write(WIDE)
    await stage.decide(Decision.ACCEPT)
    assert await stage.passes()
    file.unlink()
    assert not await stage.passes()
    stage.write(WIDE)


@attempt
async def a_rejected_content_comes_back(stage: Stage) -> None:
    stage.write(WIDE)
    await stage.decide(Decision.REJECT)
    stage.write(NARROW)
    await stage.passes()
    stage.write(WIDE)


@attempt
async def a_fault_is_mended_with_more(stage: Stage) -> None:
    stage.write("{")
    await stage.passes()
    stage.write(WIDE)


@attempt
async def a_key_stands_twice(stage: Stage) -> None:
    stage.write(json.dumps(NARROW)[:-1] + ', "enabled": true, "file_patterns": {"write": ["**"]}}')


@attempt
async def a_mark_stands_before_the_text(stage: Stage) -> None:
    stage.write("\ufeff" + json.dumps(WIDE))


@attempt
async def the_content_was_accepted_for_another_workspace(stage: Stage) -> None:
    other = stage.home / "other"
    stage.write(WIDE, other)
    await stage.decide(Decision.ACCEPT, other)
    shutil.copy(other / ".intercom" / "settings.json", stage.root / ".intercom" / "settings.json")


@attempt
async def the_path_is_spelled_otherwise(stage: Stage) -> Path:
    stage.write(WIDE)
    return Path(f"{stage.root}/../ws/.")


@attempt
async def it_says_that_it_is_narrower_and_is_not(stage: Stage) -> None:
    stage.write({"enabled": True, "file_patterns": {"write": ["docs/**", "src/a.py"]}})


@attempt_with_key
async def an_acceptance_is_put_into_the_database(stage: Stage) -> None:
    stage.write(WIDE)
    stage.accepted_by_hand(stage.root, json.dumps(WIDE))


@attempt_with_key
async def a_rejection_is_turned_round(stage: Stage) -> None:
    stage.write(WIDE)
    await stage.decide(Decision.REJECT)
    stage.sql("update policy_decision set accepted = 1, verdict = 'accept' where verdict = 'reject'")


@attempt_with_key
async def an_acceptance_is_given_another_content(stage: Stage) -> None:
    stage.write(WIDE)
    sha = hashlib.sha256(json.dumps(WIDE).encode()).hexdigest()
    stage.sql("update policy_decision set sha = ?, text = ?", sha, json.dumps(WIDE))


@attempt_with_key
async def an_acceptance_keeps_its_hash_and_is_given_another_text(stage: Stage) -> None:
    stage.write(WIDE)
    stage.sql("update policy_decision set text = ?", json.dumps(WIDE))


@attempt_with_key
async def an_acceptance_is_given_another_workspace(stage: Stage) -> Path:
    other = stage.home / "other"
    stage.write(WIDE, other)
    stage.write(WIDE)
    await stage.decide(Decision.ACCEPT)
    stage.sql("update policy_decision set workspace_root = ?", str(other))
    return other


@attempt_with_key
async def an_acceptance_comes_without_a_signature(stage: Stage) -> None:
    stage.write(WIDE)
    with pytest.raises(SignatureRefused):
        await stage.server.app.service.decide_policy(str(stage.root), stage.server.verdict(Decision.ACCEPT))


@attempt_with_key
async def a_signature_is_for_another_content(stage: Stage) -> None:
    stage.write({**NARROW, "tools": ["transmit"]})
    shown = await stage.server.app.service.policy(str(stage.root))
    assert shown.request_id is not None
    card = Card(
        shown.request_id,
        CardKind.POLICY,
        "",
        str(stage.root),
        "",
        stage.server.now(),
        detail=shown.sha256,
        diff=shown.text,
    )
    signed = stage.key.verdict(card, Decision.ACCEPT, stage.server.now())
    stage.write(WIDE)
    with pytest.raises(IntercomError):
        await stage.server.app.service.decide_policy(str(stage.root), signed)


@attempt_with_key
async def a_signature_is_of_another_key(stage: Stage) -> None:
    stage.write(WIDE)
    with pytest.raises(SignatureRefused):
        await evolve(stage, key=Key()).decide(Decision.ACCEPT)


CASES = [(name, False) for name in TRIES] + [(name, True) for name in (*TRIES, *WITH_KEY)]


@pytest.mark.parametrize("restarted", [False, True], ids=["live", "restarted"])
@pytest.mark.parametrize(("name", "has_key"), CASES, ids=lambda value: {True: "key", False: "no key"}.get(value, value))
async def test_no_try_makes_a_policy_count_that_nobody_accepted(
    clock: Clock, tmp_path: Path, name: str, has_key: bool, restarted: bool
) -> None:
    key = Key() if has_key else None

    async with staged(tmp_path, clock, key) as stage:
        assert await stage.passes(path="docs/a.md"), "what was accepted passes"
        root = await (TRIES | WITH_KEY)[name](stage)
        await stage.server.later(0)
        if not restarted:
            assert not await stage.passes(root)
    if restarted:
        async with staged(tmp_path, clock, key) as stage:
            assert not await stage.passes(root)
