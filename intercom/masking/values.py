"""Tests of names and values: is it the name of a secret, and is it a value and not code, a word or a template?"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from enum import IntEnum
from functools import lru_cache


class Strength(IntEnum):
    """How strongly a name indicates a secret. For a KEY only random text counts; for a PASSWORD words count too."""

    NONE = 0
    KEY = 1
    TOKEN = 2
    PASSWORD = 3


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SPLIT = re.compile(r"[\W_]+")

_PASSWORD = re.compile(
    r"(?:password|passwd|passphrase|passwort|passcode|kennwort|contrase(?:n|ñ)a|senha|wachtwoord|heslo|hasło|пароль|密码|密碼|パスワード|비밀번호|pwd|passw|psk|requirepass|masterauth|(?:bind|root|admin|db|user|ftp|ssh|smtp)pw)s?\d{0,3}$"
    r"|^(?:pass|psw|pw|storepass|keypass|dbpass|userpass|rootpass|adminpass|mysqlpass|smtppass|sshpass|passe)$"
)
_TOKEN = re.compile(
    r"(?:secret|token|apikey|secretkey|accesskey|privatekey|authkey|credential|jwt|bearer)s?\d{0,3}$"
    r"|^(?:auth|authorization|cred|creds|mnemonic|sessionid|jsessionid|phpsessid|sid|dsn)$"
)
#: Words before "key" that make it no secret. After any other word, a key is taken for a secret.
_OPEN_KEYS = frozenset(
    """
    public pub primary foreign cache sort partition row object bucket hash dict map json index unique composite
    idempotency lookup search group routing message event hot short sorted shard range natural surrogate config
    setting sitekey site host parent child next prev last first translation i18n locale field column item data type
    any some every each no this that the a an is has by of on for and or if not current_key sorting order
    cookie_name query header dedup dedupe registry known_hosts authorized ssh_pub verify verification distribution
    product part answer arrow enter tab escape space shift ctrl control alt meta function fn home end delete return
    soft left right up down page websocket socket esc numeric keyboard press pressed nonce_name correlation tracking
    project measurement minor major resource node edge document doc entity user_name section category tag label
    class style theme context lock state signal param parameter arg kwarg option attr attribute prop property
    metadata env variable var
    """.split()  # noqa: SIM905
)
#: Words that may follow the stem. Any other word makes it the name of something else (`token_url`, `password_field`).
_TAIL = frozenset(
    """
    base data value prod production dev development test testing staging stage live old new current default previous
    next string text plain raw b64 base64 hex primary secondary main backup local remote master slave read write rw
    ro admin root user app db id2 key keys salt pepper enc encoded encrypted shared global 0 1 2 3 4 5 6 7 8 9 v1 v2
    hash material bytes env
    """.split()  # noqa: SIM905
)
_NO_ONES = re.compile(
    r"^(?:public|pub|tokenizer|tokenize|tokenization|max|min|num|total|no|without|missing|invalid|bad|wrong|expected)$"
)


@lru_cache(maxsize=4096)
def strength(name: str) -> Strength:
    """Return how strongly this name indicates that its value is a secret."""
    parts = [part.lower() for part in _SPLIT.split(_CAMEL.sub("_", name)) if part]
    for at in range(len(parts) - 1, -1, -1):
        part = parts[at]
        found = Strength.NONE
        if _PASSWORD.search(part):
            found = Strength.PASSWORD
        elif _TOKEN.search(part):
            found = Strength.PASSWORD if part in ("secret", "secrets") else Strength.TOKEN
        elif part == "salt" and at:
            found = Strength.KEY
        elif part in ("key", "keys") and at and parts[at - 1] not in _OPEN_KEYS:
            found = Strength.KEY if parts[at - 1] not in ("api", "secret", "access", "private") else Strength.TOKEN
        if found is not Strength.NONE:
            if any(_NO_ONES.match(part) for part in parts[:at]):
                return Strength.NONE
            if part == "auth" and len(parts) > 1 and at != len(parts) - 1:
                return Strength.NONE
            return found
        if part not in _TAIL:
            return Strength.NONE
    return Strength.NONE


_TEMPLATE = re.compile(
    r"\.\.\.|\[[^\]]{0,40}(?:a-z|A-Z|0-9)|\\[dws][+*{]|\(\?[:P=!<]|^\(*\d+<<|"
    r"^\$[({A-Za-z_]|\$\{|\{\{|^\{[\w.:!]*\}$|\}\}|^%\(|^%[A-Z_]+%$|^<[^<>]*>?$|^\[[^\]]*\]?$|^\(|^@[\w{]|^#\{|^\*+$|^\.{2,}|^&[a-z]+;$"
    r"|(?:^|[\s\"'=:/(])%[sdr](?:$|[\s\"'/:.,)])|%\(\w+\)s|^!\w+$|\{\w*\}|^\\[nrt\"']?$"
)
_WORDS_FOR_NOTHING = re.compile(
    r"^(?:x+|y+|none|null|nil|nul|undefined|true|false|yes|no|on|off|str|string|int|integer|bytes|bool|boolean|object|any"
    r"|optional|required|text|hidden|empty|unset|unknown|default|required|redacted|masked|removed|omitted|placeholder"
    r"|n/?a|todo|tbd|fixme|dummy|example|sample|changeme|change[-_]me|replace[-_]?me|your[-_ ].*"
    r"|my[-_].*|\*+|-+|_+|\.+|0+|1+)[,;]?$",
    re.IGNORECASE,
)
#: One name in code, and the parts around a path of names: a dereference before it, a call or an index after it.
_SEGMENT = re.compile(r"[A-Za-z_$][A-Za-z_$]*\d{0,3}[A-Z]?[a-z_]{0,20}[!?]?|\d{0,3}")
_CALL = re.compile(r"^[&*!$@]{0,2}(?P<path>[\w$.:>?!-]{1,300}?)(?P<rest>[(\[].*|)[)\],;:}]{0,6}$", re.DOTALL)
_CONSTANT = re.compile(r"^[A-Z]{2,20}\d{0,4}(?:_[A-Z]{2,20}\d{0,4}){1,8}[)\],;:]{0,3}$")
_WORDS_WITH_DIGITS = re.compile(
    r"(?<![A-Za-z])(?:win32|utf_?(?:8|16|32)|base(?:64|32)|b64|sha_?(?:1|224|256|384|512)|md5|hs256|rs256|es256|aes_?(?:128|192|256)"
    r"|x509|x25519|ed25519|p256|k8s|i18n|l10n|(?:s3|ec2|h2|v\d)(?![A-Za-z])|oauth2?|http2|ipv[46]|ip[46]|u?int\d\d?|float\d\d"
    r"|pkcs\d{1,2})",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"\d+")
_JOINT = re.compile(r"\?\.|\.|::|->|-|:")
_PATH = re.compile(r"^(?:~|\.{1,2})?/?(?:[\w.@+-]{1,60}/){1,30}[\w.@+-]{0,60}$|^/[\w.@+-]{1,60}$|^[A-Za-z]:\\")
_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]{0,20}://|^(?:arn:|urn:|op://|vault:|ssm:|file:|data:|mailto:)")
_DIGEST = re.compile(r"^(?:sha(?:1|224|256|384|512)|md5|h1|blake\w{1,3})[-:=]", re.IGNORECASE)
_NUMBER = re.compile(r"^[-+]?[\d_]{1,15}(?:\.\d{1,10})?(?:[eE]\d{1,3})?(?:ms|s|m|h|d|kb|mb|gb|%|px|em)?[),;\]]{0,3}$")
_VERSION = re.compile(r"^v?\d{1,6}(?:[.:]\d{1,6}){1,20}$")
_DATE = re.compile(r"^\d{4}-\d\d-\d\d(?:[T ]|$)|^\d\d:\d\d")


def is_value(value: str) -> bool:
    """Whether this is a value, and not a template, a placeholder, an address, a number or a date."""
    if len(value) < 4 or not any(map(str.isalnum, value)):
        return False
    return not (
        _TEMPLATE.search(value)
        or _WORDS_FOR_NOTHING.match(value)
        or _ADDRESS.match(value)
        or _NUMBER.match(value)
        or _DATE.match(value)
        or _VERSION.match(value)
        or "[masked" in value
        or "…" in value
        or len(set(value)) < 3
    )


def is_word(value: str) -> bool:
    """Whether it reads like a word, a path, or a name or call in code. Names may have digits only at an end."""
    if _PATH.match(value):
        return not any(is_random(part) for part in value.split("/")) and entropy(value) < 4.6
    if _CONSTANT.match(value):
        return True
    value = _WORDS_WITH_DIGITS.sub("w", value)
    if len(value) >= 12 and len(_DIGITS.findall(value)) >= 3:
        return False
    called = _CALL.match(value)
    if called is None:
        return not any(map(str.isdigit, value)) and not _has_signs(value)
    if called["rest"].startswith("(") and re.match(r"[A-Za-z_][\w.]*$", called["path"]):
        return True
    return all(_is_name(part) for part in _JOINT.split(called["path"]))


def has_digit(value: str) -> bool:
    return any(map(str.isdigit, value))


def _is_name(part: str) -> bool:
    return bool(_SEGMENT.fullmatch(part)) and not _is_jumbled(part)


def _is_jumbled(text: str) -> bool:
    """Whether upper and lower case alternate as in no name: `xQwErTz`."""
    turns = sum(
        before.islower() != after.islower()
        for before, after in itertools.pairwise(text)
        if before.isalpha() and after.isalpha()
    )
    return len(text) >= 12 and turns * 3 > len(text) + 2


def _has_signs(value: str) -> bool:
    """Whether it contains signs that words and names never have."""
    return any(sign in value for sign in "!@#%^*+=~?/|<>&$")


def is_random(value: str) -> bool:
    """Whether it looks random: letters and digits are mixed, and not as in a name."""
    if len(value) < 8:
        return False
    if not has_digit(value):
        vowels = sum(letter in "aeiouAEIOU" for letter in value)
        return (
            len(value) >= 16
            and (_is_jumbled(value) or (len(value) >= 20 and vowels * 6 < len(value)))
            and entropy(value) > 3.5
        )
    if value.isdigit() or re.fullmatch(r"[A-Za-z]+(?:[-_.][A-Za-z]+)*[-_.]?\d{1,4}", value):
        return _is_jumbled(value)
    return entropy(value) >= (3.0 if len(value) >= 16 else 2.5)


def is_dense(value: str, bits: float = 4.5) -> bool:
    """Whether it is random enough to be a key under any name, with lower case, upper case and digits."""
    return bool(
        not _DIGEST.match(value)
        and re.search(r"[a-z]", value)
        and re.search(r"[A-Z]", value)
        and re.search(r"\d", value)
        and entropy(value[:2_000]) > bits
        and not _is_sequence(value)
    )


def is_digest(value: str) -> bool:
    return bool(_DIGEST.match(value))


_SEQUENCE = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/-_abcdefghijklmnopqrstuvwxyz0123456789abcdef"
)


def _is_sequence(value: str) -> bool:
    """Whether a large part of it is an alphabet in order."""
    return any(value[start : start + 12] in _SEQUENCE for start in range(0, min(len(value), 400) - 11, 4)) or any(
        value.lower()[start : start + 10] in _SEQUENCE for start in range(min(len(value), 200) - 9)
    )


def entropy(text: str) -> float:
    """Return the Shannon entropy in bits per character."""
    total = len(text)
    if not total:
        return 0.0
    return -sum(count / total * math.log2(count / total) for count in Counter(text).values())
