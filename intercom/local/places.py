"""Where things live: configuration, state, sockets and the token, from the environment alone.

Standard library only, and little of it: ctl and the shim import this before anything else.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping

from intercom.model.errors import ConfigError, IpcError

APP = "agent-intercom"
DEFAULT_IPC_NAME = "agent-intercom"
#: Where systemd keeps users' runtime directories, by uid.
RUN_USER = "/run/user"
#: Where root may list the operator keys: where there is such a file, no other keys count.
SYSTEM_OPERATOR_KEYS = "/etc/agent-intercom/operator-keys"
#: The user's home where it is not what the system says. Only code sets it (tests do): agents choose the environment.
STAND_IN_HOME: str | None = None

#: Bytes a socket's path may have: `sun_path` less its closing NUL.
SOCKET_PATH_LIMIT = 107 if sys.platform.startswith("linux") else 103
_IPC_NAME_LIMIT = 64
_IPC_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Places:
    """The paths of one server and its clients; pure text, nothing is created or looked at.

    `ipc_name` tells several servers of one user apart; it names the sockets, the token and the locks. All paths are
    absolute. Make one with `places`.
    """

    __slots__ = ("config_file", "ipc_name", "runtime_dir", "state_dir")

    def __init__(self, ipc_name: str, config_file: str, state_dir: str, runtime_dir: str) -> None:
        self.ipc_name = ipc_name
        self.config_file = config_file
        self.state_dir = state_dir
        self.runtime_dir = runtime_dir

    @property
    def operator_keys_file(self) -> str:
        """The public halves of the user's operator keys."""
        return os.path.join(os.path.dirname(self.config_file), "operator-keys")

    @property
    def signed_settings_file(self) -> str:
        """What the user's settings may allow without an operator key, signed with one."""
        return os.path.join(os.path.dirname(self.config_file), "signed-settings")

    @property
    def keys_directory(self) -> str:
        """Where the private halves are, each encrypted in a file of its own."""
        return os.path.join(os.path.dirname(self.config_file), "keys")

    @property
    def ctl_socket(self) -> str:
        """Where ctl reaches the server."""
        return os.path.join(self.runtime_dir, f"{self.ipc_name}.sock")

    @property
    def mcp_socket(self) -> str:
        """Where shims reach the server."""
        return os.path.join(self.runtime_dir, f"{self.ipc_name}.mcp.sock")

    @property
    def token_file(self) -> str:
        """The running server's token, mode 0600."""
        return os.path.join(self.runtime_dir, f"{self.ipc_name}.token")

    @property
    def http_token_file(self) -> str:
        """The token for MCP over HTTP, mode 0600; the same for every server of this user, and for good."""
        return os.path.join(self.state_dir, "http.token")

    @property
    def http_address_file(self) -> str:
        """Where a running server says at which address it serves HTTP."""
        return os.path.join(self.runtime_dir, f"{self.ipc_name}.http")

    @property
    def start_lock(self) -> str:
        """Locked by the one shim that is starting a server, so that twenty shims do not start twenty."""
        return os.path.join(self.runtime_dir, f"{self.ipc_name}.start")

    @property
    def audit_anchor_file(self) -> str:
        """The heads of the audit log, kept outside of the database."""
        return os.path.join(self.state_dir, "audit.anchor")

    @property
    def log_file(self) -> str:
        """The background server's log, unless the configuration names another."""
        return os.path.join(self.state_dir, "log", f"{self.ipc_name}.log")

    @property
    def database(self) -> str:
        """The database, unless the configuration names another."""
        return os.path.join(self.state_dir, "data", "agent-rc.db")


def places(ipc_name: str = DEFAULT_IPC_NAME, environ: Mapping[str, str] | None = None) -> Places:
    """Say where things live for this user.

    `environ` stands in for the process's environment. The runtime directory is `$XDG_RUNTIME_DIR/agent-intercom` when
    that names a directory of this user (after `su` it often names another's), else the same below `/run/user/<uid>`
    if there is one, else `<tempdir>/agent-intercom-<uid>`.

    Raises IpcError when `ipc_name` has characters that do not belong in a file name, or when the sockets' paths come
    out longer than the system allows.
    """
    env = os.environ if environ is None else environ
    check_ipc_name(ipc_name)
    home = _home(env)
    found = Places(
        ipc_name,
        config_file=os.path.join(_xdg(env, "XDG_CONFIG_HOME", home, ".config"), APP, "config.toml"),
        state_dir=os.path.join(_xdg(env, "XDG_STATE_HOME", home, ".local/state"), APP),
        runtime_dir=_runtime_dir(env),
    )
    check_socket_path(found.mcp_socket)
    return found


def check_ipc_name(name: str) -> None:
    """Refuse a name that could not be a file's: raises IpcError."""
    if not name or len(name) > _IPC_NAME_LIMIT or not _IPC_NAME_CHARACTERS.issuperset(name) or name[0] in ".-":
        raise IpcError(
            f"ipc_name {name!r} is not usable: use 1 to {_IPC_NAME_LIMIT} of the characters a-z A-Z 0-9 . _ -, "
            "not starting with . or -"
        )


def check_socket_path(path: str) -> None:
    """Refuse a path no socket can have: raises IpcError."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT:
        raise IpcError(
            f"the socket path {path} has {length} bytes, and this system allows {SOCKET_PATH_LIMIT}: "
            "use a shorter ipc_name or set XDG_RUNTIME_DIR to a shorter directory"
        )


def ipc_name_in(config_file: str) -> str:
    """Read `ipc_name` from a configuration file; without the file or the key, the default.

    Only that key is looked at: the server checks the rest and says what is wrong with it. Raises ConfigError when the
    file is there and can not be read as TOML.
    """
    return str(peek(config_file).get("ipc_name", DEFAULT_IPC_NAME))


def peek(config_file: str) -> dict[str, object]:
    """Read a configuration file without judging it; empty when there is none.

    Raises ConfigError when the file is there and can not be read as TOML.
    """
    try:
        with open(config_file, "rb") as file:
            text = file.read()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"can not read {config_file}: {error.strerror}") from None
    import tomllib  # costs more than the rest of this module, and most users have no file

    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{config_file} is not TOML: {error}") from None


def private_directory(path: str) -> str:
    """Make `path` (and its parents) with mode 0700, or check that the one there is this user's alone.

    Returns `path`. Raises IpcError when it is a link, no directory, another user's, or open to others: whoever made it
    so could swap sockets and files in it. Raises OSError when it can not be made.
    """
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        private_directory(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        raise IpcError(f"{path} must be a directory of its own, not a link or file: remove it and start again")
    if found.st_uid != os.geteuid():
        raise IpcError(f"{path} belongs to uid {found.st_uid}, not to you: remove it, or set XDG_RUNTIME_DIR")
    if found.st_mode & 0o077:
        raise IpcError(f"{path} is open to other users (mode {found.st_mode & 0o777:o}): run chmod 700 on it")
    return path


def system_home() -> str | None:
    """The user's home as the system says, whatever the environment does; None for a uid that it does not know."""
    if STAND_IN_HOME is not None:
        return STAND_IN_HOME
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None


def _home(env: Mapping[str, str]) -> str:
    home = env.get("HOME", "")
    if os.path.isabs(home):
        return home
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        raise ConfigError("HOME is not set and this uid has no passwd entry: set HOME") from None


def _xdg(env: Mapping[str, str], variable: str, home: str, default: str) -> str:
    # The specification says to ignore relative paths.
    value = env.get(variable, "")
    return os.path.normpath(value) if os.path.isabs(value) else os.path.join(home, default)


def _runtime_dir(env: Mapping[str, str]) -> str:
    uid = os.geteuid()
    # Clients that hand on only part of their environment (Codex, users of the TypeScript SDK) leave the variable out:
    # what they start must come to the same place as what a shell starts.
    for runtime in (env.get("XDG_RUNTIME_DIR", ""), f"{RUN_USER}/{uid}"):
        if os.path.isabs(runtime) and _is_of(uid, runtime):
            return os.path.join(os.path.normpath(runtime), APP)
    temp = env.get("TMPDIR", "")
    return os.path.join(os.path.normpath(temp) if os.path.isabs(temp) else "/tmp", f"{APP}-{uid}")


def _is_of(uid: int, directory: str) -> bool:
    try:
        found = os.stat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid
