"""File locations: configuration, state, sockets and the token, from the environment alone.

Few imports, all from the standard library: ctl and the shim import this before anything else.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping

from intercom.model.errors import ConfigError, IpcError

APP = "agent-intercom"
DEFAULT_IPC_NAME = "agent-intercom"
#: The name of the server that `agent-intercom rooms` runs.
ROOMS_IPC_NAME = "rooms"
#: The parent of systemd's runtime directories of users, by uid.
RUN_USER = "/run/user"
#: Root's list of operator keys. If this file exists, no other keys count.
SYSTEM_OPERATOR_KEYS = "/etc/agent-intercom/operator-keys"
#: Replaces the user's home from the system. Only code sets it (in tests), because agents choose the environment.
STAND_IN_HOME: str | None = None

#: The maximum length of a socket's path in bytes: `sun_path` without its final NUL.
SOCKET_PATH_LIMIT = 107 if sys.platform.startswith("linux") else 103
_IPC_NAME_LIMIT = 64
_IPC_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Places:
    """The paths of one server and its clients. Pure text: nothing is created or read.

    `ipc_name` distinguishes several servers of one user, in the names of sockets, tokens and locks. All paths are
    absolute. Create one with `places`.
    """

    __slots__ = ("config_file", "ipc_name", "runtime_dir", "state_dir")

    def __init__(self, ipc_name: str, config_file: str, state_dir: str, runtime_dir: str) -> None:
        self.ipc_name = ipc_name
        self.config_file = config_file
        self.state_dir = state_dir
        self.runtime_dir = runtime_dir

    @property
    def operator_keys_file(self) -> str:
        """The file with the public halves of the user's operator keys."""
        return os.path.join(os.path.dirname(self.config_file), "operator-keys")

    @property
    def signed_settings_file(self) -> str:
        """The file with the signed settings, which allow decisions without an operator key."""
        return os.path.join(os.path.dirname(self.config_file), "signed-settings")

    @property
    def gateway_directory(self) -> str:
        """The files of the gateway's downstreams and roles, unless the configuration names another directory."""
        return os.path.join(os.path.dirname(self.config_file), "gateway")

    @property
    def gateway_credentials(self) -> str:
        """The directory of what the gateway's remote downstreams are signed in with."""
        return os.path.join(self.state_dir, "gateway-oauth")

    @property
    def keys_directory(self) -> str:
        """The directory of the private halves, each encrypted in its own file."""
        return os.path.join(os.path.dirname(self.config_file), "keys")

    @property
    def ctl_socket(self) -> str:
        """The server's socket for ctl."""
        return os.path.join(self.runtime_dir, f"{self.ipc_name}.sock")

    @property
    def mcp_socket(self) -> str:
        """The server's socket for shims."""
        return os.path.join(self.runtime_dir, f"{self.ipc_name}.mcp.sock")

    @property
    def token_file(self) -> str:
        """The running server's token, mode 0600."""
        return os.path.join(self.runtime_dir, f"{self.ipc_name}.token")

    @property
    def http_token_file(self) -> str:
        """The token for MCP over HTTP, mode 0600. It is permanent, and the same for every server of this user."""
        return os.path.join(self.state_dir, "http.token")

    @property
    def push_key_file(self) -> str:
        """The key pair by which push services know this user's servers, mode 0600. It is permanent."""
        return os.path.join(self.state_dir, "web-push.key")

    @property
    def http_address_file(self) -> str:
        """The file in which a running server publishes its HTTP address."""
        return os.path.join(self.runtime_dir, f"{self.ipc_name}.http")

    @property
    def web_port_file(self) -> str:
        """The file in which a server leaves the page's port to the next one, while browsers may be signed in."""
        return os.path.join(self.runtime_dir, f"{self.ipc_name}.web-port")

    @property
    def start_lock(self) -> str:
        """The lock of the shim that starts a server, so that only one shim starts one."""
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
    """Return the file locations of this user.

    `environ` replaces the process's environment. The runtime directory is `$XDG_RUNTIME_DIR/agent-intercom` if the
    variable names a directory of this user (after `su` it often names another's). Otherwise it is the same below
    `/run/user/<uid>` if that exists, or `<tempdir>/agent-intercom-<uid>`.

    Raises IpcError if `ipc_name` has characters that are not allowed, or if a socket's path is too long for the system.
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
    """Raise IpcError for a name that is not usable as a file name."""
    if not name or len(name) > _IPC_NAME_LIMIT or not _IPC_NAME_CHARACTERS.issuperset(name) or name[0] in ".-":
        raise IpcError(
            f"ipc_name {name!r} is not usable: use 1 to {_IPC_NAME_LIMIT} of the characters a-z A-Z 0-9 . _ -, "
            "not starting with . or -"
        )


def check_socket_path(path: str) -> None:
    """Raise IpcError for a path that is too long for a socket."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT:
        raise IpcError(
            f"the socket path {path} has {length} bytes, and this system allows {SOCKET_PATH_LIMIT}: "
            "use a shorter ipc_name or set XDG_RUNTIME_DIR to a shorter directory"
        )


def ipc_name_in(config_file: str) -> str:
    """Read `ipc_name` from a configuration file. Without the file or the key, return the default.

    Other keys are not checked; the server does that. Raises ConfigError if the file exists but is not readable TOML.
    """
    return str(peek(config_file).get("ipc_name", DEFAULT_IPC_NAME))


def peek(config_file: str) -> dict[str, object]:
    """Read a configuration file without checks. Return an empty dict if it does not exist.

    Raises ConfigError if the file exists but is not readable TOML.
    """
    try:
        with open(config_file, "rb") as file:
            text = file.read()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"cannot read {config_file}: {error.strerror}") from None
    import tomllib  # slower than the rest of this module, and most users have no file

    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{config_file} is not TOML: {error}") from None


def recorded(where: Places, config_file: str | None = None) -> Places | None:
    """Return the places of the user's server if its sockets are in another runtime directory than `where` says, because
    it was started in another environment. The lock file beside the database says so; `config_file` may name another
    database. None without such a record, or with one that cannot be trusted. The server may have ended since."""
    import json

    try:
        settings = peek(config_file or where.config_file).get("database")
        path = settings.get("path") if isinstance(settings, dict) else None
        home = os.path.dirname(config_file or where.config_file)
        database = os.path.join(home, os.path.expanduser(path)) if isinstance(path, str) else where.database
        descriptor = os.open(os.path.realpath(database) + ".lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if os.fstat(descriptor).st_uid != os.geteuid():
                return None
            runtime_dir = json.loads(file.read(4096))["runtime_dir"]
        if not os.path.isabs(runtime_dir) or os.path.normpath(runtime_dir) == where.runtime_dir:
            return None
        found = os.lstat(runtime_dir)
    except (ConfigError, KeyError, OSError, TypeError, ValueError):
        return None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        return None
    return Places(where.ipc_name, where.config_file, where.state_dir, os.path.normpath(runtime_dir))


def private_directory(path: str) -> str:
    """Create `path` and its parents with mode 0700, or check that the existing one is private to this user.

    Returns `path`. Raises IpcError if it is a link, not a directory, another user's, or open to others: they could
    replace sockets and files in it. Raises OSError if it cannot be created.
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
    """Return the user's home as the system knows it, independent of the environment. None for an unknown uid."""
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
    # The XDG specification requires that relative paths are ignored.
    value = env.get(variable, "")
    return os.path.normpath(value) if os.path.isabs(value) else os.path.join(home, default)


def _runtime_dir(env: Mapping[str, str]) -> str:
    uid = os.geteuid()
    # Some clients (Codex, users of the TypeScript SDK) do not pass the variable on. What they start must use the same
    # directory as what a shell starts.
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
