"""The secrets that a server shares with others: what callers of rooms show, the URL of the rooms' database with its
password, and what the proxy before the page shows.

They come from the server's environment or from a file, never from the configuration. A file that other users can read
or replace is refused: any of them could be a member of the page, or create rooms.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from attrs import field, frozen

from intercom.local import own_files
from intercom.model.config import RoomsSettings, WebSettings
from intercom.model.errors import ConfigError

SECRET_VARIABLE = "INTERCOM_ROOMS_SECRET"
#: That of the proxy before the page.
PROXY_VARIABLE = "INTERCOM_PROXY_SECRET"
#: Where `agent-intercom rooms` finds the URL of its database, unless `database_url_env` names another variable.
DATABASE_VARIABLE = "DATABASE_URL"

#: A shorter secret can be guessed.
SHORTEST_SECRET = 16
_SCHEMES = ("postgresql://", "postgres://")


def proxy_secret(settings: WebSettings, environ: Mapping[str, str], *, by_client: bool) -> str | None:
    """Return the secret that the proxy before the page shows; None without such a proxy. Raises ConfigError if it is
    missing, unreadable, open to other users or too short. With `by_client` an agent's client started the server: only a
    file counts then, and without one the proxy leads nowhere."""
    if not settings.enabled or settings.public_url is None:
        return None
    found = secret_in(settings.proxy_secret_file, "web.proxy_secret_file", PROXY_VARIABLE, {} if by_client else environ)
    if found is None and not by_client:
        raise ConfigError(
            "web.public_url is set, and the proxy has no secret, so any process could say who it is: set"
            f" {PROXY_VARIABLE} in the server's environment, or name a proxy_secret_file"
        )
    return found


@frozen
class RoomsSecrets:
    """`secret` is None if callers show none, and `database_url` if the rooms are in an SQLite file."""

    secret: str | None = field(default=None, repr=False)
    database_url: str | None = field(default=None, repr=False)

    @property
    def database_password(self) -> str | None:
        """The password in the database's URL; None if there is none."""
        try:
            found = None if self.database_url is None else urlsplit(self.database_url).password
        except ValueError:
            return None
        return None if found is None else unquote(found)


def read(settings: RoomsSettings, environ: Mapping[str, str]) -> RoomsSecrets:
    """Return the secrets that these settings name; none without rooms. Raises ConfigError for a secret that is missing,
    unreadable, open to other users or too short, and for a variable without the URL of a PostgreSQL database."""
    if not settings.enabled:
        return RoomsSecrets()
    return RoomsSecrets(_secret(settings, environ), _database_url(settings, environ))


def is_database_url(text: str) -> bool:
    """Whether this names a PostgreSQL database, and not a file."""
    return text.startswith(_SCHEMES)


def without_password(url: str) -> str:
    """Return a database's URL as people may see it: without the password, and without parameters."""
    scheme = url.partition("://")[0]
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return f"{scheme}://..."
    if "@" in parts.path + parts.query + parts.fragment:
        # A password with a sign in it that had to be escaped (/, ? or #): nobody knows where it ends.
        return f"{scheme}://..."
    user = f"{parts.username}@" if parts.username else ""
    return f"{scheme}://{user}{host}{'' if port is None else f':{port}'}{parts.path}"


def _secret(settings: RoomsSettings, environ: Mapping[str, str]) -> str | None:
    found = secret_in(settings.secret_file, "rooms.secret_file", SECRET_VARIABLE, environ)
    if found is None and settings.secret_required:
        raise ConfigError(
            f"rooms.secret_required is set, and there is no secret: set {SECRET_VARIABLE} in the server's environment,"
            " or name a secret_file"
        )
    return found


def secret_in(file: Path | None, setting: str, variable: str, environ: Mapping[str, str]) -> str | None:
    """Return the secret in this file, which a setting names, or else in this variable; None if there is neither. Raises
    ConfigError for one that is unreadable, open to other users or too short."""
    if file is not None:
        return _long_enough(_read(file, setting), str(file))
    found = environ.get(variable, "").strip()
    return _long_enough(found, f"{variable} in the environment") if found else None


def _read(path: Path, setting: str) -> str:
    try:
        return own_files.read_shared(path).decode("utf-8").strip()
    except ConfigError as fault:
        raise ConfigError(f"{setting} {fault.message}") from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigError(f"{setting} {path} cannot be read ({why}): make it a file you may read") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{setting} {path} is not text: write a secret in it") from None


def _long_enough(secret: str, where: str) -> str:
    if len(secret) < SHORTEST_SECRET or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ConfigError(
            f"{where} must hold a secret of at least {SHORTEST_SECRET} letters, digits and signs, without spaces:"
            " openssl rand -hex 32 makes one"
        )
    return secret


def _database_url(settings: RoomsSettings, environ: Mapping[str, str]) -> str | None:
    name = settings.database_url_env
    if name is None:
        return None
    found = environ.get(name, "").strip()
    if not found:
        raise ConfigError(f"rooms.database_url_env names {name}, which is not in the server's environment: set it")
    if not is_database_url(found):
        raise ConfigError(
            f"{name} in the environment must be a PostgreSQL database: postgresql://USER:PASSWORD@HOST/NAME"
        )
    return found
