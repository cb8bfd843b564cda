"""Only what this user or root wrote, and nobody else can write, counts in the gateway's directory; nothing blocks."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from intercom.gateway.config_directory import FILE_BYTES, Settings, read_settings, signature
from intercom.gateway.roles import Effect, decide

GITHUB = {
    "name": "github",
    "transport": "stdio",
    "command": "x",
    "capabilities": ["github.*"],
    "schemaVersion": "1.0.0",
}
ROLES = '{"roles": [{"role": "dev", "capabilities": ["github.*"]}], "defaultRole": "dev"}'
#: No test runs as this user.
OTHER = 12_345


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with one downstream and one role."""
    made = tmp_path / "gateway"
    made.mkdir(mode=0o700)
    put(made / "github.json", json.dumps(GITHUB))
    put(made / "roles.json", ROLES)
    return made


def put(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)


def belongs_to_another(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let this path belong to another user; only root could really do that."""
    inode = path.stat().st_ino

    def changed(found: os.stat_result) -> os.stat_result:
        return os.stat_result((*found[:4], OTHER, *found[5:10])) if found.st_ino == inode else found

    stat, fstat = os.stat, os.fstat
    monkeypatch.setattr(os, "stat", lambda *args, **more: changed(stat(*args, **more)))
    monkeypatch.setattr(os, "fstat", lambda descriptor: changed(fstat(descriptor)))


def has_nothing(found: Settings) -> bool:
    return not found.configs and not found.roles.roles and found.assignments.default_role is None


def test_what_only_this_user_can_write_counts(home: Path) -> None:
    home.chmod(0o755)
    (home / "roles.json").chmod(0o644)
    found = read_settings(home)
    assert (list(found.configs), found.assignments.default_role, found.faults) == (["github"], "dev", ())


@pytest.mark.parametrize(("mode", "who"), [(0o602, "every user"), (0o620, "its group"), (0o666, "every user")])
@pytest.mark.parametrize("name", ["github.json", "roles.json"])
def test_a_file_that_others_can_write_is_refused_and_the_remedy_works(
    home: Path, name: str, mode: int, who: str
) -> None:
    file = home / name
    file.chmod(mode)
    found = read_settings(home)
    [fault] = found.faults
    assert fault == f"{file} can be written by {who}: if all in it is right, run: chmod go-w {file}"
    assert (list(found.configs), found.assignments.default_role) == (
        ([], "dev") if name == "github.json" else (["github"], None)
    )
    subprocess.run(shlex.split(fault.partition("run: ")[2]), check=True)
    assert read_settings(home).faults == ()


@pytest.mark.parametrize("name", ["github.json", "roles.json"])
def test_a_file_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    belongs_to_another(monkeypatch, home / name)
    found = read_settings(home)
    [fault] = found.faults
    assert f"{name} belongs to uid {OTHER}, not to you: remove it" in fault
    assert f"sudo chown {os.geteuid()} {home / name}" in fault
    assert (name == "github.json") == (not found.configs)
    assert (name == "roles.json") == (found.assignments.default_role is None)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_nothing_of_a_directory_that_others_can_write_counts_and_that_is_one_fault(home: Path, mode: int) -> None:
    put(home / "broken.json", "{")
    home.chmod(mode)
    found = read_settings(home)
    assert has_nothing(found)
    [fault] = found.faults
    assert "so no downstream and no role in it counts" in fault
    assert fault.endswith(f"run: chmod go-w {home}")


def test_nothing_of_another_users_directory_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    belongs_to_another(monkeypatch, home)
    found = read_settings(home)
    assert has_nothing(found)
    [fault] = found.faults
    assert f"belongs to uid {OTHER}, not to you, so no downstream and no role in it counts" in fault


def test_a_path_is_quoted_for_the_shell(home: Path) -> None:
    odd = home.rename(home.with_name("a b; touch pwned #"))
    odd.chmod(0o777)
    [fault] = read_settings(odd).faults
    assert shlex.split(fault.partition("run: ")[2]) == ["chmod", "go-w", str(odd)]


def test_what_is_no_directory_is_a_fault_and_one_that_does_not_exist_is_none(home: Path) -> None:
    assert read_settings(home / "none") == Settings()
    [fault] = read_settings(home / "roles.json").faults
    assert "is not a directory" in fault
    [fault] = read_settings(home / "roles.json" / "x").faults
    assert "cannot be read (Not a directory)" in fault


@pytest.mark.parametrize("name", ["github.json", "roles.json"])
def test_a_pipe_does_not_block(home: Path, name: str) -> None:
    (home / name).unlink()
    os.mkfifo(home / name, 0o600)
    assert [each for each in read_settings(home).faults if "is not a regular file" in each]


def test_roles_that_are_too_large_or_no_text_are_refused(home: Path) -> None:
    put(home / "roles.json", ROLES + " " * FILE_BYTES)
    [fault] = read_settings(home).faults
    assert f"is larger than {FILE_BYTES} bytes: remove what no agent needs" in fault
    (home / "roles.json").write_bytes(b'{\n"roles": "\xe9"}')
    [fault] = read_settings(home).faults
    assert fault == f"{home / 'roles.json'}, line 2: is not UTF-8 text: save it as UTF-8"
    (home / "roles.json").unlink()
    (home / "roles.json").symlink_to("nowhere")
    [fault] = read_settings(home).faults
    assert "cannot be read (No such file or directory)" in fault


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"defaultRole": "a", "roles": [\n{"role": "a", "deny": ["x.y"], "deny": []}]}', "roles[0].deny"),
        ('{"defaultRole": "a", "roles": [\n{"role": "a", "deny": ["x.y"], "d\\u0065ny": []}]}', "roles[0].deny"),
        ('{"defaultRole": "a", "roles": [],\n"roles": [{"role": "a", "capabilities": ["*.*"]}]}', "roles"),
        ('{"defaultRole": "a", "roles": [],\n"classes": {"x": {"r": ["a"]}, "x": {}}}', "classes.x"),
        ('{"defaultRole": "a", // ,"x": 1\n"defaultRole": "b"}', "defaultRole"),
    ],
)
def test_a_key_of_the_roles_that_is_written_twice_is_a_fault_and_grants_nothing(
    home: Path, text: str, key: str
) -> None:
    put(home / "roles.json", text)
    found = read_settings(home)
    assert found.faults == (f"{home / 'roles.json'}, line 2: {key} is written twice: keep one of the two",)
    assert not found.roles.roles
    assert found.assignments.default_role is None


# --- classes ---------------------------------------------------------------------------------------------------------

CLASSES: dict[str, object] = {"write": ["create_*", "delete_*"]}
#: A person is asked before the calls of a class.
ASKS: dict[str, object] = {
    "defaultRole": "dev",
    "roles": [{"role": "dev", "capabilities": ["github.*"], "ask": ["github.write"]}],
}


def put_classes(home: Path, classes: dict[str, object], **more: object) -> None:
    put(home / "github.json", json.dumps({**GITHUB, "classes": classes, **more}))


def effects(found: Settings) -> tuple[Effect, Effect]:
    """What follows for a call of the class `write`, and for another one."""
    return tuple(decide(found.roles, "dev", "github", verb).effect for verb in ("delete_repo", "search"))  # type: ignore[return-value]


@pytest.mark.parametrize("text", ["{", "", '{"name": "github", "x": 1}'])
def test_the_classes_of_a_file_that_gets_a_fault_stay(home: Path, text: str) -> None:
    put_classes(home, CLASSES)
    put(home / "roles.json", json.dumps(ASKS))
    before = read_settings(home)
    put(home / "github.json", text)
    found = read_settings(home, before)
    again = read_settings(home, found)
    assert effects(before) == effects(found) == effects(again) == (Effect.ASK, Effect.ALLOW)
    assert again.configs == before.configs
    assert again.faults


def test_a_rule_whose_class_is_gone_counts_for_all_tools(home: Path) -> None:
    put_classes(home, CLASSES)
    put(home / "roles.json", json.dumps(ASKS))
    before = read_settings(home)
    put_classes(home, {"writes": ["create_*", "delete_*"]})
    found = read_settings(home, before)
    assert effects(found) == (Effect.ASK, Effect.ASK)
    assert found.faults == (
        f"{home / 'github.json'}, classes.write is gone, so ask github.write counts for all tools of github: write the"
        " class again, or change the rule in roles.json; if it means a tool, run agent-intercom stop",
    )
    # Also after a time in which nobody had a role.
    put(home / "roles.json", "{")
    without = read_settings(home, found)
    put(home / "roles.json", json.dumps(ASKS))
    assert effects(read_settings(home, without)) == (Effect.ASK, Effect.ASK)
    put_classes(home, CLASSES)
    after = read_settings(home, without)
    assert (effects(after), after.faults) == ((Effect.ASK, Effect.ALLOW), ())


def test_each_class_of_the_roles_takes_the_place_of_that_one_alone(home: Path) -> None:
    put_classes(home, {**CLASSES, "search": ["find_*"]}, readOnly=["get_*"])
    put(home / "roles.json", json.dumps({**ASKS, "classes": {"github": {"search": ["look_*"]}, "fs": {"x": ["y"]}}}))
    found = read_settings(home)
    assert found.roles.classes == {
        "github": {"write": ("create_*", "delete_*"), "search": ("look_*",), "read": ("get_*",)},
        "fs": {"x": ("y",)},
    }
    assert effects(found) == (Effect.ASK, Effect.ALLOW)


# --- changes ---------------------------------------------------------------------------------------------------------


def test_a_change_of_owner_or_mode_is_a_change(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a server would not notice that the remedy was carried out."""
    seen = [signature(home)]
    for path in (home / "roles.json", home / "github.json", home):
        mode = path.stat().st_mode
        path.chmod(mode | 0o040)
        seen.append(signature(home))
        path.chmod(mode)
    belongs_to_another(monkeypatch, home / "roles.json")
    seen.append(signature(home))
    assert len({*seen}) == len(seen)
