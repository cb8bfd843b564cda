"""What .gitignore leaves out here is what git leaves out."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from intercom.workspace import gitignore
from intercom.workspace.manifest import take_manifest
from tests.support.machine_speed import is_below
from tests.workspace.test_against_git import ENVIRONMENT, GIT

NAMES = ["a", "b", "ab", "a.log", "b.txt", ".env", "build", "é", "x y", "[x]", "#a", "!a", "foo.bar"]
name = st.sampled_from(NAMES)
path = st.lists(name, min_size=1, max_size=4).map("/".join)

part = st.one_of(
    name,
    st.sampled_from(
        ["*", "**", "*.log", "a*", "?", "[ab]", "[!a]", "[^a]*", "**a", "a**", "\\#a", "\\!a", "[[:alpha:]]"]
    ),
    st.sampled_from(
        ["*.*", "[a-c].txt", "[]x]", "\\[x\\]", "x\\ y", "[", "a\\", "b?ild", "*a*b*", "[a-", "", "!", "#a"]
    ),
)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    body = "/".join(draw(st.lists(part, min_size=1, max_size=3)))
    return (
        draw(st.sampled_from(["", "", "", "!"]))
        + draw(st.sampled_from(["", "", "/", "**/"]))
        + body
        + draw(st.sampled_from(["", "", "/", "/**", "/*", " ", "\\ "]))
    )


files = st.lists(st.lists(patterns(), max_size=5), max_size=1).map(lambda many: many[0] if many else [])
places = st.dictionaries(st.sampled_from(["", "a", "a/b", "build"]), files, max_size=3)


def fill(root: Path, paths: list[str], rules: dict[str, list[str]]) -> None:
    for each in paths:
        file = root / each
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(each)
        except OSError:
            continue  # a file stands where a directory would be, or the other way round
    for directory, lines in rules.items():
        if (root / directory).is_dir():
            (root / directory / ".gitignore").write_text("\n".join(lines) + "\n")


def seen_by_git(root: Path) -> set[str]:
    assert GIT is not None
    subprocess.run([GIT, "init", "-q"], cwd=root, env=ENVIRONMENT, check=True)
    command = [GIT, "ls-files", "-z", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, env=ENVIRONMENT, capture_output=True, check=True)
    return {os.fsdecode(each) for each in done.stdout.split(b"\0") if each}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(paths=st.lists(path, min_size=1, max_size=10), rules=places)
@example(["a/b/a", "b/a/b"], {"": ["*", "!a/", "!a/b"]})
@example(["foo.bar/a.log", "a.log"], {"": ["*.log", "!foo.bar/"]})
@example(["a/b/build/a", "build"], {"": ["build/"], "a": ["!build"]})
@example(["a/b/a.log", "a/a.log"], {"": ["a/**/a.log"]})
@example(["a/b", "b/a"], {"": ["**", "!*/"]})
def test_the_files_of_a_checkpoint_are_those_that_git_would_add(
    tmp_path_factory: pytest.TempPathFactory, paths: list[str], rules: dict[str, list[str]]
) -> None:
    root = tmp_path_factory.mktemp("ignore")
    fill(root, paths, rules)
    assert set(take_manifest(root).files) == seen_by_git(root)
    shutil.rmtree(root)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(paths=st.lists(path, min_size=1, max_size=10), rules=places)
def test_a_path_alone_is_judged_as_on_the_walk(
    tmp_path_factory: pytest.TempPathFactory, paths: list[str], rules: dict[str, list[str]]
) -> None:
    root = tmp_path_factory.mktemp("alone")
    fill(root, paths, rules)
    everything = {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}
    read = {
        str(file.parent.relative_to(root)).removeprefix("."): gitignore.read_rules(file.read_bytes())
        for file in root.rglob(".gitignore")
    }
    assert {each for each in everything if not gitignore.ignored_by(read, each)} == set(take_manifest(root).files)
    shutil.rmtree(root)


def test_a_file_written_on_another_system_is_read_like_any_other(tmp_path: Path) -> None:
    fill(tmp_path, ["a.log", "b.txt"], {})
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbf*.log\r\n")
    assert set(take_manifest(tmp_path).files) == {".gitignore", "b.txt"} == seen_by_git(tmp_path)


def test_rules_behind_a_link_do_not_count(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root, ["a.log"], {})
    (tmp_path / "rules").write_text("*.log\n")
    (root / ".gitignore").symlink_to(tmp_path / "rules")
    assert set(take_manifest(root).files) == {".gitignore", "a.log"} == seen_by_git(root)


@pytest.mark.parametrize(
    "pattern", ["*a" * 60 + "b", "**/" * 40 + "b", "a/**/" * 30 + "b", "[a-z]*" * 60 + "!", "?*" * 60 + "b"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    rules = gitignore.read_rules(pattern.encode())
    names = ["a" * 250] * 3 + ["a"] * 197
    began = time.process_time()
    for _ in range(10):
        assert rules.ignores(names, False) is None
    assert is_below(1, time.process_time() - began)
