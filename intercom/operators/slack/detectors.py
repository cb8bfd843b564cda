"""What counts as a secret in a line of text: detect-secrets' own detectors, and a few more written as its plugins.

The library is loaded by importing this module, which takes a tenth of a second: `masking` does so on first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from detect_secrets.filters import heuristic
from detect_secrets.plugins import (
    artifactory,
    aws,
    azure_storage_key,
    basic_auth,
    cloudant,
    discord,
    github_token,
    gitlab_token,
    ibm_cloud_iam,
    ibm_cos_hmac,
    jwt,
    keyword,
    mailchimp,
    pypi_token,
    sendgrid,
    slack,
    softlayer,
    square_oauth,
    stripe,
    telegram_token,
    twilio,
)
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.high_entropy_strings import Base64HighEntropyString


class Found(NamedTuple):
    """Where in the line a secret stands, and of what kind it is."""

    start: int
    end: int
    kind: str


class Additional(RegexBasedDetector):
    """A plugin for a format that the library does not know, or knows only in part."""

    denylist: tuple[re.Pattern[str], ...] = ()
    secret_type = ""

    def __init__(self, kind: str, *patterns: str) -> None:
        self.secret_type = kind
        self.denylist = tuple(re.compile(pattern) for pattern in patterns)


#: The library's detectors by the kind we call what they find. Left out: hexadecimal entropy (every hash of a commit),
#: public addresses (no secrets), npm's and OpenAI's (quadratic in a line's length; see below) and private keys (of
#: several lines: see `masking`).
_KNOWN: Final[tuple[tuple[str, Any], ...]] = (
    ("Artifactory credential", artifactory.ArtifactoryDetector()),
    ("AWS access key", aws.AWSKeyDetector()),
    ("Azure storage key", azure_storage_key.AzureStorageKeyDetector()),
    ("password in a URL", basic_auth.BasicAuthDetector()),
    ("Cloudant credential", cloudant.CloudantDetector()),
    ("Discord token", discord.DiscordBotTokenDetector()),
    ("GitHub token", github_token.GitHubTokenDetector()),
    ("GitLab token", gitlab_token.GitLabTokenDetector()),
    ("IBM Cloud key", ibm_cloud_iam.IbmCloudIamDetector()),
    ("IBM COS key", ibm_cos_hmac.IbmCosHmacDetector()),
    ("JSON Web Token", jwt.JwtTokenDetector()),
    ("Mailchimp key", mailchimp.MailchimpDetector()),
    ("PyPI token", pypi_token.PypiTokenDetector()),
    ("SendGrid key", sendgrid.SendGridDetector()),
    ("Slack token", slack.SlackDetector()),
    ("SoftLayer credential", softlayer.SoftlayerDetector()),
    ("Square secret", square_oauth.SquareOAuthDetector()),
    ("Stripe key", stripe.StripeDetector()),
    ("Telegram token", telegram_token.TelegramBotTokenDetector()),
    ("Twilio key", twilio.TwilioKeyDetector()),
)

_ADDED: Final[tuple[tuple[str, Any], ...]] = tuple(
    (plugin.secret_type, plugin)
    for plugin in (
        Additional("Slack token", r"xapp-\d-[A-Za-z0-9-]{10,200}", r"xoxe(?:\.xox[bp])?-[A-Za-z0-9-]{10,300}"),
        Additional("GitHub token", r"github_pat_[A-Za-z0-9_]{22,255}"),
        Additional("GitLab token", r"gl(?:pat|dt|ptt|rt|cbt|soat)-[A-Za-z0-9_.-]{20,300}"),
        Additional("Anthropic key", r"sk-ant-[A-Za-z0-9_-]{20,200}"),
        Additional(
            "OpenAI key",
            r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,250}",
            r"\bsk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}",
        ),
        Additional("Google key", r"AIza[A-Za-z0-9_-]{35}", r"GOCSPX-[A-Za-z0-9_-]{20,60}", r"ya29\.[\w-]{20,500}"),
        Additional("Stripe key", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,250}", r"whsec_[A-Za-z0-9+/=]{20,100}"),
        Additional("npm token", r"npm_[A-Za-z0-9]{36}", r"_authToken\s{0,4}=\s{0,4}([^\s\"'$]{8,300})"),
        Additional("Vault token", r"hv[sb]\.[A-Za-z0-9_-]{20,300}"),
        Additional("Hugging Face token", r"\bhf_[A-Za-z0-9]{30,60}\b"),
        Additional(
            "AWS secret key",
            r"(?i)aws_?(?:secret|session)\w{0,30}\s{0,4}[=:]\s{0,4}[\"']?([A-Za-z0-9/+=]{40,1200})",
        ),
        Additional(
            "authorization header",
            r"(?i)\bauthorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:bearer|basic|token)\s{1,4}([A-Za-z0-9._~+/=-]{8,4000})",
        ),
    )
)

_PASSWORD = "password or key"
_ENTROPY = "high-entropy string"
_BASE64 = Base64HighEntropyString()

#: A line of a configuration: one name, one value without blanks or quotes. Only there need a secret not be quoted.
_SETTING = re.compile(
    r"^[+\- ]?\s*(?:export\s+|set\s+|ENV\s+)?"
    r"[\"']?(?P<name>[\w.-]{1,80})[\"']?\s{0,8}(?P<sign>[=:])\s{0,8}(?P<value>[^\s\"']{4,500})\s*$"
)
#: A name, a path of names or a call of code: what stands for a value, and is none.
_REFERENCE = re.compile(r"^[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_]\w*)*(?:\(.*\)?|\[.*\]?)?[,;]?$")
_PLACEHOLDER = re.compile(
    r"^[<\[{(*.]|[>\]})*.]$|^\$|^%|^(?:x+|null|none|nil|true|false|str|int|bytes|bool|undefined)[,;]?$", re.IGNORECASE
)
#: A digest says how it was made, and gives nothing away.
_DIGEST = re.compile(r"^sha(?:1|224|256|384|512)[-:=]", re.IGNORECASE)
_MIXED = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)")

#: What a line must hold for any detector to find something; most lines of code hold none of it.
_PROMISING = re.compile(r"pass|pwd|secret|token|key|auth|contrase|credential|[A-Za-z0-9+/=_~.-]{16}|://", re.IGNORECASE)


def find(line: str) -> Iterator[Found]:
    """The secrets in one line, in no order; they may overlap."""
    if not _PROMISING.search(line):
        return
    for kind, plugin in (*_KNOWN, *_ADDED):
        valid: Callable[[str], bool] | None = getattr(plugin, "is_formally_valid", None)
        for pattern in plugin.denylist:
            for match in pattern.finditer(line):
                start, end = _secret_of(match)
                secret = line[start:end]
                if _plausible(secret) and (valid is None or valid(secret)):
                    yield Found(start, end, kind)
    yield from _named(line)
    for match in _BASE64.regex.finditer(line):
        secret = match.group(2)
        if len(secret) >= 20 and _is_random(secret):
            yield Found(match.start(2), match.end(2), _ENTROPY)


def _named(line: str) -> Iterator[Found]:
    """Values that a name such as `password` gives away: quoted anywhere, bare in a line of a configuration."""
    for pattern, group in keyword.QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP.items():
        for match in pattern.finditer(line):
            value = match.group(group)
            if value and _is_value(value) and not (_is_name(value) and "." in value):
                yield Found(match.start(group), match.end(group), _PASSWORD)
    setting = _SETTING.match(line)
    if setting is None:
        return
    value = setting["value"]
    # In an environment file a word is a value; elsewhere it is more likely the name of one.
    environment = setting["sign"] == "=" and setting["name"].isupper()
    if not _is_value(value) or (_is_name(value) and not environment):
        return
    for pattern, group in keyword.CONFIG_DENYLIST_REGEX_TO_GROUP.items():
        named = pattern.search(line)
        if named and named.group(group):
            yield Found(setting.start("value"), setting.end("value"), _PASSWORD)
            return


def _secret_of(match: re.Match[str]) -> tuple[int, int]:
    """The part of a match that is the secret: its last group, unless that is only a prefix."""
    last = match.lastindex
    # A group that begins where the match does is a prefix, as of GitHub's tokens.
    if last and match.start(last) > match.start() and match.end(last) > match.start(last):
        return match.span(last)
    # Blanks and quotes around the match are not the secret's, nor what a URL ends its password with.
    text = match.group()
    inner = text.strip(" \t\"'@:=")
    start = match.start() + text.find(inner)
    return (start, start + len(inner)) if inner else match.span()


def _plausible(secret: str) -> bool:
    return bool(secret) and not heuristic.is_templated_secret(secret) and not secret.startswith(("$", "{{"))


def _is_value(value: str) -> bool:
    """Whether a value is one, and no placeholder, call or name of another."""
    return not (
        _PLACEHOLDER.search(value)
        or heuristic.is_templated_secret(value)
        or heuristic.is_sequential_string(value)
        or heuristic.is_not_alphanumeric_string(value)
        or heuristic.is_potential_uuid(value)
    )


def _is_name(value: str) -> bool:
    """Whether a value reads like a name or a call in code: it has no digit, and nothing that a name has not."""
    return bool(_REFERENCE.match(value)) and not any(map(str.isdigit, value))


def _is_random(text: str) -> bool:
    return bool(
        _MIXED.match(text)
        and not _DIGEST.match(text)
        and not heuristic.is_sequential_string(text)
        and _BASE64.calculate_shannon_entropy(text[:2_000]) > _BASE64.entropy_limit
    )
