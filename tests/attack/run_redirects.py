"""Between approval and apply the tree is turned against the approval: nothing but the recorded path may change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.attack.redirects import REDIRECTS, TEXT, Redirect, prepare
from tests.support.server_process import Home, begin, call


def snapshot(*trees: Path) -> dict[Path, object]:
    """Every entry below these trees: a link's target, a file's bytes, or its kind. Links are not followed."""
    found: dict[Path, object] = {}
    for tree in trees:
        for directory, directories, files in os.walk(tree):
            for name in (*directories, *files):
                path = Path(directory, name)
                status = path.lstat()
                if stat.S_ISLNK(status.st_mode):
                    found[path] = os.readlink(path)
                elif stat.S_ISREG(status.st_mode):
                    found[path] = path.read_bytes()
                else:
                    found[path] = stat.S_IFMT(status.st_mode)
    return found


@pytest.mark.parametrize("redirect", REDIRECTS, ids=lambda each: each.name)
@pytest.mark.real_time
async def test_only_the_recorded_path_may_change(served: Home, redirect: Redirect) -> None:
    import trio

    root = served.workspace()
    outside = root.with_name(root.name + ".outside")
    outside.mkdir()
    prepare(root, outside)
    async with served.agent(root) as agent, served.person(root) as person, trio.open_nursery() as nursery:
        asked = begin(
            nursery, agent, "check_clearance", title="t", diff=redirect.diff, file_path=redirect.path, risk_level="low"
        )
        card = await person.card(status="pending")
        await person.do("approve", id=card["request_id"])
        assert (await asked())["status"] == "approved"
        redirect.attack(root, outside)
        trees = (root, outside, root.with_name(root.name + ".moved"))
        before = snapshot(*trees)
        answer = await call(agent, "check_diff", request_id=card["request_id"])
        after = snapshot(*trees)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    if answer["status"] == "applied":
        assert changed == {root / redirect.path}, answer
        assert after[root / redirect.path] == TEXT.encode()
    else:
        assert changed == set(), answer
