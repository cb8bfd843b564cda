"""Rules for secrets that are found by their context: a name, a header, an option, an address, a file format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from intercom.masking.shapes import Judge, Rule, rule
from intercom.masking.values import (
    Strength,
    entropy,
    has_digit,
    is_dense,
    is_digest,
    is_random,
    is_value,
    is_word,
    strength,
)


class Found(NamedTuple):
    """The position and kind of a secret in the text. It is always within one line."""

    start: int
    end: int
    kind: str


PASSWORD: Final = "password or key"
HEADER: Final = "authorization header"
ADDRESS: Final = "password in a URL"


def _anything(_name: str, value: str) -> bool:
    return is_value(value)


def _opaque(_name: str, value: str) -> bool:
    """Accept any value with a digit or a special character, for places where only a value can be."""
    return is_value(value) and (has_digit(value) or not is_word(value))


def _named(name: str, value: str) -> bool:
    return strength(name) is not Strength.NONE and _opaque(name, value)


def _is_named_secret(name: str, value: str) -> bool:
    return (
        strength(name) is not Strength.NONE
        and is_value(value)
        and not is_word(value)
        and len(value) >= 16
        and is_random(value)
        and entropy(value) > 3.2
    )


def _quoted(name: str, value: str) -> bool:
    """Accept a value in quotes: for a password any word that is no name in code, for a key only random text."""
    if not is_value(value) or is_digest(value):
        return False
    much = strength(name)
    if name.lower() == "key":
        return len(value) >= 20 and is_dense(value, 4.0)
    if much is Strength.NONE or value.lower() == name.lower():
        return False
    if " " in value:
        return much is Strength.PASSWORD and _is_phrase(value)
    if much is Strength.KEY:
        return len(value) >= 12 and is_random(value) and not is_word(value)
    if not is_word(value):
        return much is Strength.PASSWORD or is_random(value) or (len(value) >= 12 and entropy(value) > 3.2)
    if len(value) >= 10 and has_digit(value) and entropy(value) > 3.0 and not re.fullmatch(r"[A-Z]?[a-z_-]+\d*", value):
        return True
    return much is Strength.PASSWORD and _is_plain(value) and strength(value) is Strength.NONE


def _quoted_word(name: str, value: str) -> bool:
    return (
        " " not in value
        and strength(name) is not Strength.NONE
        and is_value(value)
        and not is_word(value)
        and is_random(value)
    )


def _bare(name: str, value: str) -> bool:
    """Accept a value without quotes, in places where code is possible: only text unlike a name or a call."""
    much = strength(name)
    if not is_value(value) or is_word(value) or is_digest(value):
        return False
    if name.lower() == "key":
        return len(value) >= 20 and is_dense(value, 4.0)
    if much is Strength.NONE:
        return False
    return is_random(value) and (much is not Strength.KEY or len(value) >= 12) and not _STEM_WITHIN.search(value)


def _setting(name: str, value: str) -> bool:
    """Accept the value of a configuration line, which consists of a name, a sign and the value."""
    if _bare(name, value):
        return True
    much = strength(name)
    if much is Strength.NONE or not is_value(value) or is_digest(value):
        return False
    if name.isupper() and re.fullmatch(r"[A-Za-z0-9._-]{4,}", value):
        # In an environment file a word is a value; elsewhere it is more likely a name.
        return much is not Strength.KEY and not value.isupper() and strength(value) is Strength.NONE
    if much is Strength.PASSWORD and not is_word(value) and not _STEM_WITHIN.search(value):
        return True
    # Words with dashes are not names in code.
    return much is Strength.PASSWORD and "-" in value and bool(re.fullmatch(r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)+", value))


def _assigned(name: str, value: str) -> bool:
    """Accept the value of a line `name=value` without spaces. Code has no such complete line."""
    if not _opaque(name, value):
        return False
    return strength(name) is Strength.PASSWORD and (
        not _STEM_WITHIN.search(value) or (name.isupper() and has_digit(value))
    )


def _is_phrase(value: str) -> bool:
    """Whether several words are a pass phrase, and not a sentence about one."""
    return (
        len(value) <= 80
        and value.count(" ") <= 5
        and has_digit(value)
        and value[-1] not in ".:?!"
        and not _STEM_WITHIN.search(value)
        and not any(sign in value for sign in "()[]{}<>=;")
    )


#: Text that mentions keys is the name of a class or a key, not a key.
_STEM_WITHIN = re.compile(r"(?:private|public|api|secret|access)_?key|password|secret|token|credential", re.IGNORECASE)


def _is_plain(value: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9@#!_-]{5,40}", value)) and not re.search(
        r"_|^[A-Z][a-z]+$|-(?:id|key|name|url)$", value
    )


def _random(_name: str, value: str) -> bool:
    return is_value(value) and is_random(value) and not is_word(value)


def _dense(_name: str, value: str) -> bool:
    return len(value) >= 20 and is_dense(value)


def _query(name: str, value: str) -> bool:
    """Accept a URL parameter with a name that is usual for credentials, `key` and `sig` included."""
    if not is_value(value) or is_word(value):
        return False
    if name.lower() in (
        "key",
        "sig",
        "signature",
        "auth",
        "code",
        "ticket",
        "session",
        "access",
        "hmac",
        "s",
    ) or name.lower().endswith("-signature"):
        return len(value) >= 16 and is_random(value)
    return strength(name) is not Strength.NONE


def _pair(value: str) -> bool:
    """Whether the base64 text contains a user and a password."""
    import base64
    import binascii

    try:
        text = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in text and text.isprintable()


def _basic(_name: str, value: str) -> bool:
    return _pair(value)


def _header(name: str, value: str) -> bool:
    known = strength(name) is not Strength.NONE or name.lower().endswith(("session", "sessionid", "signature"))
    return known and _random(name, value)


def _header_value(_name: str, value: str) -> bool:
    return is_value(value) and (not is_word(value)) and not is_digest(value)


def _cookie(name: str, value: str) -> bool:
    return (is_value(value) and len(value) >= 12 and is_random(value) and not is_word(value)) or _bare(name, value)


def _jar(name: str, value: str) -> bool:
    return _cookie(name, value) or _named(name, value)


def _pgpass(_name: str, value: str) -> bool:
    return is_value(value) and not is_word(value) and is_random(value)


#: Stems: the name of a secret contains one of them.
_STEMS = (
    "pass pwd secret token key cred auth salt kennwort contrase psw pw jwt psk session sid mnemonic bearer dsn"
    " senha wachtwoord heslo hasło пароль 密码 密碼 パスワード 비밀번호"
)
_STEM = rf"(?:{'|'.join(_STEMS.split())})"
#: An identifier, or a path of identifiers, that contains a stem. The lookbehind lets each match start only at its
#: beginning.
_NAME_REST = rf"(?P<name>[\w.$-]{{0,60}}?{_STEM}[\w.-]{{0,40}})"
_NAME = rf"(?<![\w.$-]){_NAME_REST}"
#: Space within a line.
_S = r"[ \t]{0,20}"
_Q = r"(?P<quote>(?P<escape>\\{1,3})?(?P<sign>[\"'`]))"
_IN_QUOTES = r"(?P<value>(?(escape)(?:[^\n\s\\\"'`]|\\[^\n\s\"'`])|(?:(?!(?P=sign))[^\n\s\\]|\\[^\n\s]|[ ](?![ =:+.,)\]}]))){4,4000}?)(?P=quote)"
_PLAIN = r"(?P<value>[^\s\"'`,;<>()\[\]{}&|\\]{4,4000})"


def _context(kind: str, keywords: str, pattern: str, judge: Judge, flags: int = re.IGNORECASE, reach: int = 2) -> Rule:
    return rule(kind, keywords, pattern, judge, flags=flags, reach=reach)


CONTEXTS: Final[tuple[Rule, ...]] = (
    # name = "value", in any language. A closing quote, a type and a sign may be between them.
    _context(
        PASSWORD,
        _STEMS,
        rf"{_NAME}(?:\\{{0,3}}[\"'`])?[\])]?{_S}(?::{_S}&?[A-Za-z]\w{{0,20}}(?:<\w{{1,20}}>|\[\w{{1,20}}\])?{_S}(?==))?"
        rf"(?:=>|:=|\|\|=?|\?\?=?|\?:|[=:])[ \t]{{0,20}}(?:\r?\n[+\- ]?[ \t]{{0,40}})?(?:\[{_S})?(?:!!str )?(?:&\w{{1,20}} )?"
        rf"(?:@|b|f|r|u|rb|br|L|jsonencode\()?{_Q}{_IN_QUOTES}",
        _quoted,
    ),
    # name("value"), name "value", name == "value". These may also be two unrelated words.
    _context(
        PASSWORD,
        _STEMS,
        rf"{_NAME}(?:\\{{0,3}}[\"'`])?[\])]?{_S}(?:->|===?|!==?|[,(.]|\|\||\?\?|\bis\b|\bto\b)?{_S}(?:b|f|r|u)?{_Q}{_IN_QUOTES}",
        _quoted_word,
    ),
    _context(
        "AWS secret key",
        "aws",
        r"\baws_?(?:secret|session)\w{0,30}\s{0,4}[=:]\s{0,4}[\"']?(?P<value>[A-Za-z0-9/+=]{40,1200})",
        _anything,
    ),
    # name=value, without a space: environments, queries, logs, connection strings, options.
    _context(PASSWORD, _STEMS, rf"{_NAME}(?:=|%3D){_PLAIN}", _bare),
    # A configuration line.
    _context(
        PASSWORD,
        _STEMS,
        rf"^[+\- ]?[ \t]{{0,60}}(?:export |set |setx |ENV |ARG |- |\* |> |< )?[\"']?{_NAME}[\"']?{_S}(?P<sign>[=:]|[ \t]){_S}(?:!!\w{{1,9}} |&\w{{1,20}} )?(?P<value>[^\s\"'`]{{4,4000}})(?:[ \t]{{1,20}}[#;].{{0,200}})?[ \t\r]{{0,20}}$",
        _setting,
        re.IGNORECASE | re.MULTILINE,
    ),
    _context(
        PASSWORD,
        _STEMS,
        rf"^[+\- ]?[ \t]{{0,60}}(?:export |set |setx |ENV |ARG |- )?{_NAME}=(?P<value>[^\s\"'`()]{{4,4000}})[ \t\r]{{0,20}}$",
        _assigned,
        re.IGNORECASE | re.MULTILINE,
    ),
    # name: value and "name is value", in YAML, logs and prose.
    _context(PASSWORD, _STEMS, rf"{_NAME}[\"']?(?:{_S}:{_S}| is:? | to | -> ){_PLAIN}", _bare),
    _context(PASSWORD, _STEMS, rf"{_NAME} {_PLAIN}", _is_named_secret),
    _context(PASSWORD, "api mot", rf"(?P<name>\bapi[ -]key|mot de passe)(?: is|){_S}:?{_S}{_PLAIN}", _random),
    # Options: --password x, --token 'x', -Dpassword=x.
    _context(PASSWORD, _STEMS, rf"(?<![\w-])-{{1,2}}{_NAME_REST}[ =]{_S}(?:pass:)?[\"']?(?P<value>[^\s\"'`<>|;]{{4,4000}})", _named),
    _context(PASSWORD, "-p -pw -w -a -x -u", r"\b(?:mysql\w{0,8}|mariadb\w{0,8}|sshpass|docker login|podman login|helm registry login|mongo\w{0,6}|redis-cli|ldap\w{1,8}|sqlcmd|bcp|isql|zip|unzip|7za?|7zz|rar|unrar|plink|pscp|psftp|htpasswd|psql|cqlsh|influx|smbclient|rpcclient|xfreerdp|openssl|az login|winexe|evil-winrm|snmp\w{2,8}|ansible\w{0,12}|nexus|oc login|cf login|argocd login|sfdx|hdbsql)\b(?:[^\n|;]{0,200}? )-(?:p|P|pw|w|a|W) ?(?P<q>[\"']?)(?P<value>[^\s\"'`|;]{4,400})", _random, 0),
    _context(PASSWORD, "htpasswd", r"\bhtpasswd (?:[^\n|;]{0,60}? )?-\w{0,4}b\w{0,4} \S{1,200} \S{1,80} [\"']?(?P<value>[^\s\"']{4,200})", _opaque),
    _context(PASSWORD, "pass:", r"\b(?P<name>pass):(?P<value>[^\s\"'`]{4,400})", _random),
    _context(PASSWORD, "smbclient rpcclient net", r"\b(?:smbclient|rpcclient|net|rdesktop)\b[^\n]{0,120}(?:-U ?\S{1,60}%|/user:\S{1,60} )(?P<value>[^\s\"']{4,200})", _random),
    _context(PASSWORD, "<<< |", r"<<<{0,1} ?[\"']?(?P<value>[^\s\"'`|;]{8,400})", _random),
    _context(PASSWORD, "-stdin sudo", r"\becho (?:-n )?[\"']?(?P<value>[^\s\"'`|;]{4,400})[\"']? \| ?(?:[\w /.-]{0,60}-stdin|sudo -S)", _opaque),
    # curl -u user:password and similar.
    _context(PASSWORD, "curl wget http", r"\b(?:curl|wget|https?|xh|httpie)\b[^\n|]{0,400}?[ \"']-{1,2}(?:u|user|proxy-user|U|a|auth)[ =]?[\"']?[^\s\"':/]{1,100}:(?P<value>[^\s\"'`]{4,400})", _opaque, 0),
    _context("cookie", "curl", r"\bcurl\b[^\n|]{0,400}? (?:-b|--cookie)[ =]?[\"']?(?P<name>[\w.-]{1,60})=(?P<value>[^\s\"';]{4,4000})", _cookie, 0),
    # Headers.
    _context(HEADER, "bearer", r"\bbearer[ +](?P<value>[A-Za-z0-9._~+/=-]{16,6000})", _random),
    _context(HEADER, "basic", r"\bbasic[ +](?P<value>[A-Za-z0-9+/=_-]{8,4000})", _basic),
    _context(
        HEADER,
        "authorization",
        r"\b(?P<name>(?:proxy-)?authorization)[\"'`]?\]?\s{0,4}[:=,]\s{0,4}[\"'`]?(?:(?:bearer|basic|token|apikey|api-key|genie-?key|ssws|hmac|negotiate|ntlm|key|splunk|bot|oauth|aws4-hmac-sha256|digest|zoho-oauthtoken|sso-key|snyk|pve\w{1,20}|[A-Za-z-]{3,20})[ +=]{1,3})?(?:\w{1,20}=[\"']?)?(?P<value>[A-Za-z0-9._~+/=:|-]{8,6000})",
        _header_value,
    ),
    _context(HEADER, "authorization", r"\b(?P<name>authorization): [^\n]{0,400}\b(?:response|signature|oauth_token|oauth_signature|token)=\\?[\"']?(?P<value>[A-Za-z0-9%+/=_-]{16,600})", _header_value),
    _context(
        "key in a header",
        "-key -token apikey -secret -csrf -auth -password -signature -session",
        r"(?<![\w-])(?P<name>(?:[A-Za-z0-9]{1,20}-){0,4}(?:api-?key|key|token|secret|auth|password|signature|session|sessionid))[\"'`]?\]?[ \t]{0,4}[:,=][ \t]{0,4}\\?[\"'`]?(?P<value>[A-Za-z0-9._~+/=-]{16,6000})",
        _header,
    ),
    _context("cookie", "cookie", r"\bcookie[\"'`]?\]?[ \t]{0,4}[:=,][ \t]{0,4}[\"'`]?(?:[^\s=;\"']{1,80}=[^\s;\"']{0,4000}; ?){0,30}?(?P<name>[^\s=;\"']{1,80})=(?P<value>[^\s;\"',]{8,4000})", _cookie),
    # Addresses.
    _context(ADDRESS, "://", r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s/:@\"'<>`]{0,200}:(?P<value>[^\s@\"'<>`]{1,400})@(?=[\w\[$\{])", lambda _n, value: not _in_template(value)),
    _context("token in a URL", "://", r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}://(?P<value>[A-Za-z0-9_.~-]{16,400})(?::[^\s@/\"']{0,60})?@(?=[\w\[])", _random),
    _context("token in a URL", "", r"(?:[?#;]|&(?:amp;)?)(?P<name>[\w.-]{1,60})=(?P<value>[^\s&\"'<>`;,)#]{4,4000})", _query),
    _context("one-time password", "otpauth", r"otpauth://[^\s?\"']{1,200}\?(?:[^\s\"']{0,200}&)?(?P<name>secret)=(?P<value>[A-Za-z2-7]{10,200})", _anything),
    # Connection strings.
    _context(PASSWORD, "password pwd accountkey sharedaccess secret", r"(?P<name>\b(?:password|pwd|accountkey|sharedaccesskey|sharedsecret|secret))[ \t]{0,2}=[ \t]{0,2}'?(?P<value>[^\s;'\"&<>()\[\]{}]{4,400})(?=['\";\s<]|$)", _opaque),
    _context(PASSWORD, "sig=", r"(?<![\w-])(?P<name>sig)=(?P<value>[A-Za-z0-9%+/=_-]{20,200})", _random),
    # XML: elements, attributes, and pairs of a key and a value.
    _context(PASSWORD, _STEMS, rf"<(?:\w{{1,30}}:)?{_NAME_REST}(?:[ \t][^<>\n]{{0,200}})?>\s{{0,20}}(?:<!\[CDATA\[)?(?P<value>[^\s<>\[\]]{{4,4000}})(?:\]\]>)?\s{{0,20}}</", _named),
    _context(PASSWORD, _STEMS, rf"\b(?:name|key|id|var|variable)={_S}[\"']{_NAME}[\"'][^<>\n]{{0,200}}>\s{{0,20}}(?P<value>[^\s<>]{{4,4000}})</", _named),
    _context(PASSWORD, _STEMS, rf"<key>{_NAME}</key>\s{{0,40}}[+\- ]?\s{{0,40}}<\w{{1,20}}>(?P<value>[^\s<>]{{4,4000}})</", _named),
    _context(
        PASSWORD,
        _STEMS,
        rf"(?<![\w-])[\"']?(?:name|key|variable|id|field|property|header)[\"']?{_S}[=:]{_S}[\"']?{_NAME}[\"']?{_S},?(?:\r?\n[+\- ]?)?[^\n<>{{}}]{{0,60}}?\b[\"']?(?:value|default|content|contents|string|secret)[\"']?{_S}[=:]{_S}[\"']?(?P<value>[^\s\"'`,;<>{{}}]{{4,4000}})",
        _named,
    ),
    _context(PASSWORD, "value=", rf"\bvalue={_S}[\"'](?P<value>[^\s\"'<>]{{4,4000}})[\"'][^<>\n]{{0,80}}\b(?:name|key)={_S}[\"']{_NAME}[\"']", _named),
    _context(PASSWORD, "variable", rf"\bvariable{_S}[\"']{_NAME}[\"'][^\n]{{0,40}}\{{(?:[^{{}}\n]{{0,200}}\n){{1,12}}?[^{{}}\n]{{0,40}}\bdefault{_S}={_S}[\"'](?P<value>[^\s\"']{{4,4000}})", _named),
    # Values on the next line: block scalars, here documents, multi-line strings.
    _context(PASSWORD, _STEMS, rf"{_NAME}[\"']?{_S}[=:]{_S}(?:[|>][+-]?|\\|<<[~-]?[\"']?\w{{1,20}}[\"']?|\"\"\"|'''){_S}\r?\n[+\- ]?[ \t]{{0,40}}(?P<value>[^\s\"'`]{{4,4000}})[ \t]{{0,20}}(?=\r?\n|$|[\"'])", _named),
    _context(PASSWORD, _STEMS, rf"{_NAME}{_S}[=:]{_S}(?:\"\"\"|''')(?P<value>[^\s\"'`]{{4,4000}})", _named),
    _context(PASSWORD, _STEMS, rf"^[+\- ]?[ \t]{{0,60}}{_NAME}[\"']?{_S}:{_S}\r?\n[+\- ]?[ \t]{{0,40}}(?P<value>[^\s\"'`]{{6,4000}})[ \t]{{0,20}}$", lambda name, value: strength(name) is not Strength.NONE and _random(name, value), re.IGNORECASE | re.MULTILINE),
    _context(PASSWORD, "form-data", rf"form-data;{_S}name=\\?\"{_NAME}\\?\"(?:\r?\n[^\r\n]{{1,200}})?\s{{2,8}}(?P<value>[^\s\"]{{4,4000}})", _named, reach=4),
    # SQL.
    _context(PASSWORD, "identified password", r"\b(?P<name>identified by|(?:encrypted )?password|identified with \w{1,40} by)[ \t(=]{1,4}'(?P<value>[^'\s]{4,400})'", _opaque),
    # Code: calls that set a password, and pairs of a user and a password.
    _context(PASSWORD, "auth login credential", r"\b(?P<name>(?:\w{0,20}auth|login|authenticate|NetworkCredential|BasicCredentials?|UsernamePasswordCredentials?|PasswordAuthentication)) ?=? ?\(\s{0,4}[\"'][^\"'\n]{1,100}[\"'], ?[\"'](?P<value>[^\s\"']{4,400})[\"']", _opaque),
    _context(PASSWORD, "securestring", r"ConvertTo-SecureString(?: -String)? ?[\"'](?P<value>[^\s\"']{4,400})[\"']", _anything),
    _context(PASSWORD, _STEMS, rf"#define[ \t]{{1,8}}{_NAME}[ \t]{{1,20}}\"(?P<value>[^\s\"]{{4,400}})\"", lambda name, value: strength(name) is not Strength.NONE and is_value(value)),
    _context(PASSWORD, "user", r"\buser(?:name)? \S{1,60}, ?(?P<name>password|pw|pwd) (?P<value>[^\s,]{4,200})", _opaque),
    _context(PASSWORD, "pass pwd pw kenn", r"\b(?P<name>password|passphrase|passwd|pwd|pw|passwort)[ \t]{1,4}[\"']?(?P<value>[^\s\"',;<>()]{6,200})", _random),
    _context(PASSWORD, "from-literal", r"--from-literal[= ][\w.-]{1,100}=[\"']?(?P<value>[^\s\"']{4,4000})", _anything),
    _context(PASSWORD, "login user cred", r"\b(?:login|user(?:name)?|credentials?|user/pass(?:word)?)[ \t]{0,4}[:=][ \t]{0,4}[\w.@-]{1,60} ?[:/][ \t]{0,2}(?P<value>[^\s\"'`,;<>()]{6,200})", _random),
    _context(PASSWORD, "@", r"(?<![\w.:/-])[\w.-]{1,40}:(?P<value>[^\s:@/\"'`<>()\[\]{},;]{8,100})@[\w-]{1,60}\.[\w.-]{1,100}", lambda name, value: _random(name, value) and bool(re.search("[A-Z!#$%&*+^~?]", value))),
    _context(PASSWORD, "net cmdkey reg", r"\b(?:net1? user \S{1,60}|reg add [^\n]{0,200}passw\S{0,20}[^\n]{0,80} /d) (?P<value>[^\s\"'/]{4,200})", _random),
    _context(PASSWORD, "send", r"\bsend(?:_user)? (?:-- )?\"(?P<value>[^\s\"\\$]{6,200})\\r", _random),
    _context("recovery phrase", "mnemonic seed phrase", r"\b(?:mnemonic|seed|recovery)(?:[_ ]?(?:phrase|words?))?[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?P<value>[a-z]{3,8}(?: [a-z]{3,8}){11,23})\b", lambda _name, _value: True),
    _context(PASSWORD, "sqlplus jdbc:oracle", r"\b(?:sqlplus (?:-\w{1,8} )*[\"']?|jdbc:oracle:\w{1,8}:)[\w.]{1,60}/(?P<value>[^\s\"'@]{4,200})@", _opaque),
    _context(PASSWORD, "ssh-keygen", r"\bssh-keygen\b[^\n|;]{0,200}? -[NP] ?[\"']?(?P<value>[^\s\"'`|;]{4,400})", _opaque, 0),
    _context(PASSWORD, "mc alias", r"\bmc alias set \S{1,60} \S{1,200} \S{1,100} [\"']?(?P<value>[^\s\"']{6,200})", _opaque),
    _context(PASSWORD, "chpasswd", r"\becho (?:-n )?[\"']?[\w.-]{1,60}:(?P<value>[^\s\"'`|]{4,400})[\"']? ?\| ?(?:sudo )?chpasswd", _opaque),
    _context(ADDRESS, "%3a%2f%2f", r"%3a%2f%2f[^\s:@\"'<>`%]{0,100}%3a(?P<value>[^\s@\"'<>`]{1,400}?)%40(?=[\w\[])", lambda _n, value: not _in_template(value)),
    # Files of various programs.
    _context("cookie", "true false", r"^[+\- ]?(?:#HttpOnly_)?[\w.-]{3,253}\t(?:TRUE|FALSE)\t/\S{0,400}\t(?:TRUE|FALSE)\t\d{1,20}\t(?P<name>[^\s]{1,100})\t(?P<value>\S{6,4000})$", _jar, re.MULTILINE),
    _context(PASSWORD, "random_password", r"\brandom_password\b(?:(?!random_password)[^\x00]){0,3000}?\"(?P<name>result)\"[ \t]{0,4}:[ \t]{0,4}\"(?P<value>[^\s\"]{4,400})\"", _anything, reach=40),
    _context(PASSWORD, "login machine default", r"\b(?:machine|default|login)\b[^\n]{0,200}\s[+\- ]?\s{0,20}(?:login \S{1,200}\s{1,20})?(?:[+\- ]\s{0,20})?(?P<name>password|account)[ \t]{1,8}(?P<value>\S{4,400})", _opaque),
    _context(PASSWORD, "", r"^[+\- ]?[\w.*-]{1,200}:(?:\d{1,5}|\*):[\w*-]{1,100}:[\w*-]{1,100}:(?P<value>[^\s:]{4,200})[ \t\r]{0,4}$", _pgpass, re.MULTILINE),
    _context(PASSWORD, "_auth _password", r"(?P<name>_auth|_password|_authToken)[ \t]{0,4}[=:][ \t]{0,4}[\"']?(?P<value>[^\s\"'$]{8,400})", lambda _n, value: is_value(value) and not is_word(value)),
    _context("Docker credential", '"auth" identitytoken', r"\"(?P<name>auth|identitytoken)\\{0,2}\"[ \t]{0,4}:[ \t]{0,4}\\{0,2}\"(?P<value>[A-Za-z0-9+/=._-]{8,4000})", lambda name, value: name != "auth" or _pair(value) or is_random(value)),
    _context("private key", "privatekey presharedkey", r"\b(?P<name>PrivateKey|PresharedKey)[ \t]{0,4}=[ \t]{0,4}(?P<value>[A-Za-z0-9+/]{42,43}=)", _anything),
    _context("private key", "private_key_id privatekeyid", r"(?P<name>private_?key_?id)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?P<value>[0-9a-f]{40})", _anything),
    _context("private key", '"kty"', r"\"(?P<name>d|k|p|q|dp|dq|qi)\"[ \t]{0,4}:[ \t]{0,4}\"(?P<value>[A-Za-z0-9_-]{16,2000})\"", _anything, 0, 12),
    _context("Sentry address", "sentry ingest", r"https?://(?P<value>[0-9a-f]{32}(?::[0-9a-f]{32})?)@", _anything),
    # Quoted text that is too random to be anything else.
    _context("high-entropy string", "", r"(?P<quote>[\"'`])(?P<value>[A-Za-z0-9+/=_-]{20,4000})(?P=quote)", _dense, 0),
)  # fmt: skip


def _in_template(value: str) -> bool:
    """Whether the password in a URL is a placeholder: `$PASSWORD`, `{password}`, `***`."""
    return (
        value.startswith(("$", "{", "<", "%s", "%(", "["))
        or value.endswith(("}", ">"))
        or not value.strip("*x.-_")
        or "[masked" in value
        or "//" in value
    )


#: The keywords of rules that start with a name. Such a rule reads only lines with a name that indicates a secret.
STEMS: Final = tuple(_STEMS.split())
_NAMES = re.compile(_NAME, re.IGNORECASE)


def holds_name(text: str, start: int, end: int) -> bool:
    """Whether this part of a text contains the name of a secret."""
    return any(strength(match["name"]) or match["name"].lower() == "key" for match in _NAMES.finditer(text, start, end))


_DATA = re.compile(r"^[+\- ]?(?P<margin>[ \t]{0,40})(?P<word>data|stringData):[ \t]{0,4}$", re.MULTILINE)
_ENTRY = re.compile(
    r"[+\- ]?(?P<margin>[ \t]{1,40})[\"']?[\w.-]{1,253}[\"']?:[ \t]{1,8}[\"']?(?P<value>[^\s\"'|>{}\[\]]{4,4000})"
)
#: The maximum number of lines of a secret.
_SECRET_LINES = 2_000
_SECRET = re.compile(
    r"^[+\- ]?[ \t]{0,40}kind:[ \t]{0,4}[\"']?(?:Sealed)?Secret\b|\"kind\"\s{0,4}:\s{0,4}\"(?:Sealed)?Secret\"",
    re.MULTILINE,
)
#: A value of several lines, and the lines that are indented deeper than its name.
_BLOCK = re.compile(r"[+\- ]?(?P<margin>[ \t]{1,40})[\"']?[\w.-]{1,253}[\"']?:[ \t]{1,8}[|>][+-]?\d?[ \t]{0,8}\r?$")
_DEEPER = re.compile(r"[+\- ]?(?P<margin>[ \t]{0,80})(?P<value>\S.{0,3999})?")
_JSON_DATA = re.compile(r"\"(?:data|stringData)\"\s{0,4}:\s{0,4}\{(?P<entries>[^{}]{0,200000})\}")
_JSON_ENTRY = re.compile(r"\"[\w.-]{1,253}\"\s{0,4}:\s{0,4}\"(?P<value>(?:[^\"\\\n]|\\.){4,40000})\"")


def find_kubernetes(text: str) -> Iterator[Found]:
    """Find the values of a Kubernetes secret: all of its data."""
    if not _SECRET.search(text):
        return
    for block in _JSON_DATA.finditer(text):
        for entry in _JSON_ENTRY.finditer(text, *block.span("entries")):
            if "[masked" not in entry["value"]:
                yield Found(*entry.span("value"), _KUBERNETES)
    for block in _DATA.finditer(text):
        at = block.end() + 1
        inside: int | None = None
        for _ in range(_SECRET_LINES):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            deeper = _DEEPER.match(text, at, end)
            if inside is not None and deeper is not None and (not deeper["value"] or len(deeper["margin"]) > inside):
                if deeper["value"] and not deeper["value"].startswith("[masked"):
                    yield Found(*deeper.span("value"), _KUBERNETES)
                at = end + 1
                continue
            inside = None
            scalar, value = _BLOCK.match(text, at, end), _ENTRY.match(text, at, end)
            if at >= len(text) or (scalar is None and value is None and text[at:end].strip("+- \t\r")):
                break
            if scalar is not None:
                inside = len(scalar["margin"])
            elif value is not None and "[masked" not in value["value"]:
                yield Found(*value.span("value"), _KUBERNETES)
            at = end + 1


_KUBERNETES: Final = "Kubernetes secret"
#: A list with a secret's name, one item per line: in YAML, or in brackets.
_LIST = re.compile(
    rf"^[+\- ]?[ \t]{{0,60}}(?:export |const |let |var )?[\"']?{_NAME}[\"']?{_S}[:=]{_S}[\[(]?[ \t\r]{{0,20}}$",
    re.IGNORECASE | re.MULTILINE,
)
_ITEM = re.compile(
    r"[+\- ]?[ \t]{0,60}(?:-[ \t]{1,8})?(?P<quote>[\"'`]?)(?P<value>[^\s\"'`,:]{4,4000})(?P=quote)[ \t]{0,8},?[ \t\r]{0,20}(?:\+|#.{0,200})?$"
)


def find_lists(text: str, spans: Iterable[tuple[int, int]]) -> Iterator[Found]:
    """Find the items of each list with a secret's name. The name is in one of `spans`, which are in order. This
    includes the parts of a string in brackets."""
    at = 0
    for head in chain.from_iterable(_LIST.finditer(text, first, last) for first, last in spans):
        if head.start() < at or strength(head["name"]) is Strength.NONE:
            # These lines were part of an earlier list; no line is read twice.
            continue
        at = head.end() + 1
        while at < len(text):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            is_masked = text.find("[masked", at, end) >= 0
            item = None if is_masked else _ITEM.match(text[at:end])
            if item is None and not is_masked:
                break
            if item is not None and _random(head["name"], item["value"]):
                yield Found(at + item.start("value"), at + item.end("value"), PASSWORD)
            at = end + 1


_MASKED_QUOTED = re.compile(r"\[masked: [A-Za-z0-9 -]{1,40}\](?P<quote>[\"'`])")
_NEXT_PART = re.compile(
    r"[ \t]{0,20}[+.&\\]?[ \t]{0,20}(?:\r?\n[+\- ]?[ \t]{0,60}[+.&]?[ \t]{0,20})?"
    r"(?P<quote>[\"'`])(?P<value>[^\n\"'`\\]{0,4000})(?P=quote)"
)


def find_parts(text: str) -> Iterator[Found]:
    """Find the later parts of a string that code joins, if its first part is masked."""
    at = 0
    for first in _MASKED_QUOTED.finditer(text):
        if first.start() < at:
            continue
        at = first.end()
        while (part := _NEXT_PART.match(text, at)) is not None:
            value, at = part["value"], part.end()
            if " " not in value and is_value(value) and not is_word(value) and not is_digest(value):
                yield Found(*part.span("value"), PASSWORD)
