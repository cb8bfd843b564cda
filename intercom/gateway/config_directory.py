"""The directory of the gateway: a file for each downstream, and one with roles and who has which.

These files say which programs start, with which secrets, and who may call them. So only this user and root may own the
directory and its files, and nobody else may write them. Any other file is refused, and so is all that any other
directory has.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from attrs import evolve, field, frozen

from intercom.gateway.assignments import Assignments
from intercom.gateway.assignments import parse as parse_assignments
from intercom.gateway.downstream_config import DownstreamConfig
from intercom.gateway.downstream_file import check
from intercom.gateway.json_settings import BadJson, Fault, key_lines, parse_json
from intercom.gateway.roles import ANY, NO_ROLES, Capability, Effect, Roles
from intercom.gateway.roles import parse as parse_roles

#: The one file of the directory that is no downstream's.
ROLES_FILE: Final = "roles.json"
#: What tells one state of the directory from another.
Signature: TypeAlias = tuple[tuple[str | int, ...], ...]
#: The largest file, in bytes.
FILE_BYTES: Final = 1_048_576


class _Refused(Exception):
    """A path does not count. `fault` says why."""

    def __init__(self, path: Path, what: str, remedy: str, line: int | None = None) -> None:
        self.fault = Fault(str(path), "", what, remedy, line)
        super().__init__(str(self.fault))


def _check_access(path: Path, found: os.stat_result) -> None:
    """Raise _Refused if anybody but this user and root decides what is there."""
    quoted = shlex.quote(str(path))
    if found.st_uid not in (os.geteuid(), 0):
        what = f"belongs to uid {found.st_uid}, not to you"
        raise _Refused(path, what, f"remove it; or if all in it is right, run: sudo chown {os.geteuid()} {quoted}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        who = "every user" if found.st_mode & stat.S_IWOTH else "its group"
        raise _Refused(path, f"can be written by {who}", f"if all in it is right, run: chmod go-w {quoted}")


def _content(file: Path) -> str:
    """Return the text of a file of the directory. Never waits. Raises _Refused."""
    try:
        # Opening a pipe would wait for its writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            found = os.fstat(descriptor)
            content = stream.read(FILE_BYTES + 1) if stat.S_ISREG(found.st_mode) else b""
    except OSError as error:
        raise _Refused(file, f"cannot be read ({error.strerror})", "make it a file that you may read") from None
    if not stat.S_ISREG(found.st_mode):
        raise _Refused(file, "is not a regular file", "replace it by a file")
    _check_access(file, found)
    if len(content) > FILE_BYTES:
        needed = "one file has one downstream" if file.name != ROLES_FILE else "remove what no agent needs"
        raise _Refused(file, f"is larger than {FILE_BYTES} bytes", needed)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _Refused(file, "is not UTF-8 text", "save it as UTF-8", line) from None


def directory_fault(directory: Path) -> Fault | None:
    """Return why nothing of a directory counts, or None. One that does not exist has no fault."""
    try:
        found = os.stat(directory)
        if not stat.S_ISDIR(found.st_mode):
            raise _Refused(directory, "is not a directory", "move it away")
        if not os.access(directory, os.R_OK | os.X_OK):
            raise _Refused(directory, "cannot be read", "make it a directory that you may read")
        _check_access(directory, found)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        return Fault(str(directory), "", what, "make it a directory that you may read")
    except _Refused as refused:
        fault = refused.fault
        return evolve(fault, what=f"{fault.what}, so no downstream and no role in it counts")
    return None


def read_file(file: Path) -> tuple[DownstreamConfig | None, tuple[Fault, ...]]:
    """Check a file, as `check` does. One that others own or can write is refused: it says which programs run."""
    try:
        return check(_content(file), str(file))
    except _Refused as refused:
        return None, (refused.fault,)


@frozen
class Downstreams:
    """What the files of a directory have: the usable configurations by name, and the faults of all others. `files` are
    the names of the usable ones' files."""

    configs: Mapping[str, DownstreamConfig]
    faults: tuple[Fault, ...] = ()
    files: Mapping[str, str] = field(factory=dict)


def read_directory(directory: Path) -> Downstreams:
    """Read all files `*.json` of a directory, in the order of their names. A file with faults does not stop others.

    Two files must not have the same name inside; upper and lower case make no difference. The first one counts. If the
    directory itself has a fault, no file counts, and this is the only fault.
    """
    if (fault := directory_fault(directory)) is not None:
        return Downstreams({}, (fault,))
    configs: dict[str, DownstreamConfig] = {}
    homes: dict[str, Path] = {}
    faults: list[Fault] = []
    for file in sorted(directory.glob("*.json")):
        if file.name == ROLES_FILE:
            continue
        config, found = read_file(file)
        faults += found
        if config is None:
            continue
        first = homes.setdefault(config.name.lower(), file)
        if first != file:
            what = f"is the name in {first.name}, too"
            faults.append(Fault(str(file), "name", what, "write another name, or remove one of the files"))
            continue
        configs[config.name] = config
    return Downstreams(configs, tuple(faults), {name: str(homes[name.lower()]) for name in configs})


@frozen
class Settings:
    """All that the directory says: downstreams, roles, and who has which role. `faults` are sentences with file, key
    and remedy. `files` are the files of the downstreams, `faulty` all files with faults. `signature` changes whenever a
    file does."""

    configs: Mapping[str, DownstreamConfig] = field(factory=dict)
    roles: Roles = NO_ROLES
    assignments: Assignments = field(factory=Assignments)
    faults: tuple[str, ...] = ()
    files: Mapping[str, str] = field(factory=dict)
    faulty: frozenset[str] = frozenset()
    signature: Signature = ()


def signature(directory: Path) -> Signature:
    """Return what changes if any file of the directory is changed, added or removed, or if the owner or the mode of one
    or of the directory is. It takes some microseconds for each file: calls ask for it."""
    found: list[tuple[str | int, ...]] = []
    try:
        known = os.stat(directory)
        found.append(("", known.st_uid, known.st_mode))
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))
    except OSError:
        return tuple(found)
    for name in names:
        try:
            known = os.stat(f"{directory}/{name}")
        except OSError:
            continue
        # A copy that keeps the time of its original has a new time of its inode.
        times = (known.st_mtime_ns, known.st_ctime_ns)
        found.append((name, known.st_uid, known.st_mode, known.st_ino, known.st_size, *times))
    return tuple(found)


def read_settings(directory: Path, before: Settings | None = None) -> Settings:
    """Read the whole directory; one that does not exist has nothing. Raises nothing: faults are in the result.

    If `roles.json` has a fault, nobody has a role, so no agent may call anything. If the directory itself has one,
    nothing of it counts, and this is the only fault. `before` are the settings that were read before: a downstream
    whose file has got a fault stays as it was there, also its classes; and rules that name a class which is gone count
    as `roles` has it.
    """
    before = before or Settings()
    seen = signature(directory)
    if (fault := directory_fault(directory)) is not None:
        nobody = NO_ROLES.after(before.roles)
        return Settings(roles=nobody, faults=(str(fault),), faulty=frozenset({fault.file}), signature=seen)
    downstreams = read_directory(directory)
    faulty = frozenset(fault.file for fault in downstreams.faults)
    kept = {
        name: config
        for name, config in before.configs.items()
        # Somebody is editing its file: it keeps running as it was.
        if name not in downstreams.configs and before.files.get(name) in faulty
    }
    configs = {**downstreams.configs, **kept}
    files = {**downstreams.files, **{name: before.files[name] for name in kept}}
    classes = {name: config.all_classes for name, config in configs.items() if config.all_classes}
    found, assignments, wrong = read_roles(directory / ROLES_FILE, classes)
    found = found.after(before.roles)
    faults = (*map(str, downstreams.faults), *wrong, *_gone_classes(found, files))
    return Settings(configs, found, assignments, faults, files, faulty, seen)


def _gone_classes(roles: Roles, files: Mapping[str, str]) -> Iterator[str]:
    """Say which classes are gone that a rule in `ask` or `deny` names."""
    capabilities = [each for role in roles.roles.values() for each in role.capabilities]
    for name, file in sorted(files.items()):
        for gone in sorted(roles.former.get(name, ())):
            rules = dict.fromkeys(str(each) for each in capabilities if _restricts(each, name, gone))
            if rules:
                what = f"is gone, so {' and '.join(rules)} counts for all tools of {name}"
                remedy = f"write the class again, or change the rule in {ROLES_FILE}"
                yield str(
                    Fault(file, f"classes.{gone}", what, f"{remedy}; if it means a tool, run agent-intercom stop")
                )


def _restricts(rule: Capability, downstream: str, verb: str) -> bool:
    return rule.effect is not Effect.ALLOW and rule.tool in (downstream, ANY) and rule.verb == verb


def read_roles(
    file: Path, classes: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> tuple[Roles, Assignments, tuple[str, ...]]:
    """Return the roles of a file, who has which, and the faults. A file with a fault grants nothing, and one that does
    not exist has none. `classes` are those of the downstreams' own files. One that `roles.json` has under the same name
    takes the place of that one alone."""
    if not os.path.lexists(file):
        return NO_ROLES, Assignments(), ()
    try:
        content = _content(file)
        raw = parse_json(content)
    except _Refused as refused:
        return NO_ROLES, Assignments(), (str(refused.fault),)
    except BadJson as bad:
        fault = Fault(str(file), "", f"is not JSON ({bad.what})", "correct that place", bad.line)
        return NO_ROLES, Assignments(), (str(fault),)
    # The last one would count, and a rule that denies would be gone without a word.
    twice = [
        Fault(str(file), key, "is written twice", "keep one of the two", line)
        for key, line, is_again in key_lines(content)
        if is_again
    ]
    if twice:
        return NO_ROLES, Assignments(), tuple(map(str, twice))
    if not isinstance(raw, Mapping):
        return NO_ROLES, Assignments(), (f'{file}: must be an object, such as {{"roles": []}}',)
    own = raw.get("classes")
    merged: dict[str, object] = {
        name: {key: list(verbs) for key, verbs in each.items()} for name, each in classes.items()
    }
    for name, each in own.items() if isinstance(own, Mapping) else ():
        known = merged.get(name)
        merged[name] = {**known, **each} if isinstance(known, Mapping) and isinstance(each, Mapping) else each
    roles, faults = parse_roles({**raw, "classes": merged})
    assignments, wrong = parse_assignments(raw)
    said = tuple(f"{file}: {fault}" for fault in (*faults, *wrong))
    if roles is None or assignments is None:
        return NO_ROLES, Assignments(), said
    return roles, assignments, said
