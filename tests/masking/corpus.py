"""Secrets of many kinds, made from templates and a fixed seed, and harmless lines that look like them.

No secret stands in the repository: each is put together when the tests run. `§` in a spelling is where it goes.
"""

from __future__ import annotations

import base64
import hashlib
import random
import sysconfig
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import frozen

LOWER, DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789"
UPPER = LOWER.upper()
ALNUM = LOWER + UPPER + DIGITS
HEX = DIGITS + "abcdef"
BASE64 = ALNUM + "+/"
URLSAFE = ALNUM + "-_"

Make = Callable[[random.Random], str]


@frozen
class Kind:
    """One kind of secret: how one is made, and the texts that it stands in. `parts` of it are what must not be seen:
    by default every line of it."""

    name: str
    make: Make
    spellings: tuple[str, ...]


@frozen
class Sample:
    """One text with one secret. `secrets` are the strings of it that must not be seen."""

    kind: str
    spelling: str
    text: str
    secrets: tuple[str, ...]


#: Where a secret that is recognised by its own shape may stand.
ANYWHERE = (
    "the value § was used",
    'x = "§"',
    "X=§",
    '  {"a": "§", "b": 1}',
    "+    return call('§')",
    "-const x = `§`;",
    "https://example.com/p?x=§&y=1",
    "2026-01-01T00:00:00Z INFO sent §",
    "§",
)


def shaped(*pieces: str | tuple[int, str]) -> Make:
    """A maker: fixed text, and `(count, alphabet)` for random letters."""

    def make(chance: random.Random) -> str:
        return "".join(
            piece if isinstance(piece, str) else "".join(chance.choices(piece[1], k=piece[0])) for piece in pieces
        )

    return make


def token(name: str, *pieces: str | tuple[int, str], also: tuple[str, ...] = ()) -> Kind:
    return Kind(name, shaped(*pieces), ANYWHERE + also)


def named(name: str, *keys: str, make: Make | None = None, also: tuple[str, ...] = ()) -> Kind:
    """A secret that only its name gives away, in the spellings of configuration files and code."""
    spellings: list[str] = []
    for key in keys:
        snake = key.lower()
        camel = snake.split("_")[0] + "".join(part.title() for part in snake.split("_")[1:])
        spellings += [
            f"{key.upper()}=§",
            f'export {key.upper()}="§"',
            f"  {snake}: §",
            f'  {snake}: "§"',
            f'{snake} = "§"',
            f"{snake} = '§'  # production",
            f'"{camel}": "§",',
            f'{{"name": "app", "{snake}":"§"}}',
            f"{snake}=§",
            f"+{snake.replace('_', '.')}=§",
            f'      {camel}: "§",',
            f"<{camel}>§</{camel}>",
            f'<add {camel}="§" />',
            f"--{snake.replace('_', '-')}=§",
            f"run --{snake.replace('_', '-')} § --verbose",
            f'call({snake}="§", retries=3)',
            f'\\"{snake}\\": \\"§\\"',
            f"      - {key.upper()}=§",
            f"ENV {key.upper()} §",
            f'$env:{key.upper()} = "§"',
            f'  - name: {key.upper()}\n    value: "§"',
        ]
    return Kind(name, make or password, tuple(spellings) + also)


def password(chance: random.Random) -> str:
    """What people take for passwords: letters, digits and a few signs that need no quoting."""
    while True:
        made = "".join(chance.choices(ALNUM + "!#%*+-._~^", k=chance.randint(10, 20)))
        if made[0] in ALNUM and made[-1] in ALNUM and any(letter in DIGITS for letter in made):
            return made


def hexadecimal(count: int) -> Make:
    return shaped((count, HEX))


def some_uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def encoded(chance: random.Random, count: int) -> str:
    return base64.b64encode(chance.randbytes(count)).decode()


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def jwt(chance: random.Random) -> str:
    claims = f'{{"sub":"{chance.getrandbits(60)}","iat":1516239022}}'.encode()
    head = b'{"alg":"HS256","typ":"JWT"}'
    return ".".join(map(_urlsafe, (head, claims, chance.randbytes(32))))


def material(chance: random.Random, lines: int = 12, width: int = 64) -> list[str]:
    return ["".join(chance.choices(BASE64, k=width)) for _ in range(lines)] + [
        "".join(chance.choices(BASE64, k=width // 3)) + "="
    ]


def pem(label: str, *, head: tuple[str, ...] = ()) -> Make:
    def make(chance: random.Random) -> str:
        return "\n".join([f"-----BEGIN {label}-----", *head, *material(chance), f"-----END {label}-----"])

    return make


def encoded_pem(chance: random.Random) -> str:
    """A PEM file in base64, as Kubernetes and CI settings hold it."""
    return base64.b64encode(pem("RSA PRIVATE KEY")(chance).encode()).decode()


def escaped_pem(chance: random.Random) -> str:
    return pem("PRIVATE KEY")(chance).replace("\n", "\\n")


def putty(chance: random.Random) -> str:
    public, private = material(chance, 4), material(chance, 10)
    return "\n".join(
        (
            "PuTTY-User-Key-File-3: ssh-rsa",
            "Encryption: none",
            "Comment: me",
            "Public-Lines: 5",
            *public,
            "Private-Lines: 11",
            *private,
            f"Private-MAC: {hexadecimal(64)(chance)}",
        )
    )


def pair(chance: random.Random) -> str:
    """A user and a password in base64, as HTTP's Basic and Docker have them."""
    return base64.b64encode(f"deploy:{password(chance)}".encode()).decode()


BLOCK = (
    "§",
    "before\n§\nafter",
    "  key: |\n    §\n  other: 1",
    "@@ -1,2 +1,20 @@ x\n+§\n+after",
    "@@ -1,20 +1 @@\n-§\n after",
    '"""\n§\n"""',
)

KEY_NAMED = (
    "private_key: §",
    '"privateKey": "§"',
    "PRIVATE_KEY=§",
    'private_key = "§"',
)

KINDS: tuple[Kind, ...] = (
    # Clouds
    token("AWS access key id", "AKIA", (16, UPPER + "234567")),
    token("AWS temporary key id", "ASIA", (16, UPPER + "234567")),
    Kind(
        "AWS secret access key",
        shaped((40, BASE64)),
        (
            "aws_secret_access_key = §",
            "AWS_SECRET_ACCESS_KEY=§",
            '"SecretAccessKey": "§",',
            "secretAccessKey: '§'",
            "export AWS_SECRET_ACCESS_KEY='§'",
            "aws configure set aws_secret_access_key §",
            "  aws_secret_key: §",
            'secret_key = "§"',
        ),
    ),
    Kind(
        "AWS secret beside its id",
        shaped((40, BASE64)),
        ("AKIAABCDEFGHIJKLMNOP,§", "key: AKIAABCDEFGHIJKLMNOP:§", "AKIAABCDEFGHIJKLMNOP §"),
    ),
    Kind(
        "AWS session token",
        shaped("IQoJb3JpZ2luX2Vj", (300, BASE64), "=="),
        ("aws_session_token = §", "AWS_SESSION_TOKEN=§", '"SessionToken": "§"', "X-Amz-Security-Token: §", "got §"),
    ),
    token("AWS Bedrock key", "ABSKQmVkcm9ja0FQSUtleS", (110, BASE64)),
    Kind("AWS signed address", hexadecimal(64), ("https://b.s3.amazonaws.com/k?X-Amz-Date=2&X-Amz-Signature=§",)),
    token("Amazon MWS token", "amzn.mws.", (8, HEX), "-", (4, HEX), "-", (4, HEX), "-", (4, HEX), "-", (12, HEX)),
    token("Google API key", "AIza", (35, URLSAFE)),
    token("Google client secret", "GOCSPX-", (28, URLSAFE)),
    token("Google access token", "ya29.", (120, URLSAFE)),
    token("Google refresh token", "1//0", (1, DIGITS), (90, URLSAFE)),
    Kind("Google service account", escaped_pem, ('  "private_key": "§\\n",', "key='§'", '+  "private_key": "§",')),
    Kind("Google service account key id", hexadecimal(40), ('"private_key_id": "§",', "private_key_id: §")),
    token("Firebase messaging key", "AAAA", (7, URLSAFE), ":APA91b", (134, URLSAFE)),
    Kind(
        "Azure storage key",
        lambda chance: encoded(chance, 64),
        (
            "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=§;EndpointSuffix=core.windows.net",
            "AZURE_STORAGE_KEY=§",
            'account_key = "§"',
            "az storage blob list --account-key §",
        ),
    ),
    Kind(
        "Azure shared access signature",
        lambda chance: encoded(chance, 32).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
        (
            "https://x.blob.core.windows.net/c?sv=2022-11-02&se=2026-01-01&sr=c&sp=rl&sig=§",
            "SharedAccessSignature=sv=2022-11-02&sig=§&se=2027",
            "SharedAccessSignature sr=x&sig=§&se=1735693200&skn=root",
        ),
    ),
    Kind(
        "Azure shared access key",
        lambda chance: encoded(chance, 32),
        (
            "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=§",
            "AccountEndpoint=https://x.documents.azure.com:443/;AccountKey=§;",
            "HostName=x.azure-devices.net;DeviceId=d;SharedAccessKey=§",
            "Endpoint=https://x.azconfig.io;Id=abc;Secret=§",
        ),
    ),
    token("Azure client secret", (3, ALNUM), (1, DIGITS), "Q~", (34, ALNUM + "_.~-")),
    token("Azure DevOps token", (76, ALNUM), "AZDO", (4, ALNUM)),
    named("Azure client secret by name", "azure_client_secret"),
    Kind("Azure function key", shaped((54, URLSAFE), "=="), ("https://x.azurewebsites.net/api/f?code=§",)),
    token("DigitalOcean token", "dop_v1_", (64, HEX)),
    token("DigitalOcean OAuth token", "doo_v1_", (64, HEX)),
    token("Heroku key", "HRKU-AA", (58, URLSAFE)),
    named("Heroku key by name", "heroku_api_key", make=some_uuid),
    named("Cloudflare token", "cloudflare_api_token", make=shaped((40, URLSAFE))),
    named("Cloudflare global key", "cloudflare_api_key", make=hexadecimal(37)),
    token("Cloudflare origin key", "v1.0-", (24, HEX), "-", (146, HEX)),
    token("Fly token", "FlyV1 fm2_", (200, BASE64)),
    token("Netlify token", "nfp_", (36, ALNUM)),
    named("Vercel token", "vercel_token", make=shaped((24, ALNUM))),
    token("Supabase token", "sbp_", (40, HEX)),
    token("PlanetScale password", "pscale_pw_", (43, URLSAFE)),
    named("Linode token", "linode_token", make=hexadecimal(64)),
    named("Hetzner token", "hcloud_token", make=shaped((64, ALNUM))),
    named("Scaleway key", "scw_secret_key", make=some_uuid),
    named("Fastly key", "fastly_api_token", make=shaped((32, URLSAFE))),
    token("Alibaba key id", "LTAI5t", (18, ALNUM)),
    named("Tencent key", "tencentcloud_secret_key", make=shaped((32, ALNUM))),
    Kind("IBM Cloud key", shaped((44, URLSAFE)), ("IBMCLOUD_API_KEY=§", 'ibm_cloud_api_key = "§"', "ibmcloud login --apikey §")),
    named("Snowflake password", "snowflake_password"),
    token("Databricks token", "dapi", (32, HEX), also=("DATABRICKS_TOKEN=§-2",)),
    # Code, packages, builds
    *(
        token(f"GitHub {what}", f"{prefix}_", (36, ALNUM), also=("git clone https://x-access-token:§@github.com/a/b", "token §"))
        for prefix, what in (
            ("ghp", "personal token"),
            ("gho", "OAuth token"),
            ("ghu", "user token"),
            ("ghs", "server token"),
            ("ghr", "refresh token"),
        )
    ),
    token("GitHub fine-grained token", "github_pat_", (22, ALNUM), "_", (59, ALNUM)),
    *(
        token(f"GitLab {what}", prefix, (20, URLSAFE))
        for prefix, what in (
            ("glpat-", "personal token"),
            ("gldt-", "deploy token"),
            ("glrt-", "runner token"),
            ("glcbt-64_", "job token"),
            ("glptt-", "trigger token"),
            ("glft-", "feed token"),
            ("glagent-", "agent token"),
            ("gloas-", "OAuth secret"),
            ("glsoat-", "SCIM token"),
            ("GR1348941", "registration token"),
        )
    ),
    token("Bitbucket token", "ATCTT3xFfGN0", (160, URLSAFE), "=", (8, HEX)),
    token("Atlassian token", "ATATT3xFfGF0", (170, URLSAFE), "=", (8, HEX)),
    token("npm token", "npm_", (36, ALNUM), also=("//registry.npmjs.org/:_authToken=§",)),
    Kind("npm configuration", some_uuid, ("//registry.example.com/:_authToken=§", "//r.example.com/:_authToken = §")),
    Kind("npm password", lambda chance: encoded(chance, 18), ("//r.example.com/:_password=§", "_auth=§", '_auth = "§"')),
    token("PyPI token", "pypi-AgEIcHlwaS5vcmc", (120, URLSAFE)),
    Kind("pypirc", password, ("[pypi]\nusername = ann\npassword = §\n", "[server]\nusername: ann\npassword: §")),
    token("RubyGems key", "rubygems_", (48, HEX)),
    token("crates.io token", "cio", (32, ALNUM)),
    token("NuGet key", "oy2", (43, LOWER + DIGITS)),
    token("Docker Hub token", "dckr_pat_", (27, URLSAFE)),
    Kind("Docker auth", pair, ('"auth": "§"', '{"auths": {"r.example.com": {"auth": "§"}}}', '+\t\t\t"auth": "§"', '"auth":"§"')),
    Kind("Docker login", password, ("docker login -u ann -p § r.example.com", "docker login --username ann --password §")),
    token("CircleCI token", "CCIPAT_", (22, ALNUM), "_", (40, HEX)),
    token("Intercom token", "intercom_", (64, HEX)),
    token("Buildkite token", "bkua_", (40, HEX)),
    token("SonarQube token", "squ_", (40, HEX)),
    token("Artifactory key", "AKCp", (69, ALNUM)),
    token("Artifactory reference token", "cmVmdGtu", (56, ALNUM)),
    named("Jenkins token", "jenkins_api_token", make=shaped("11", (32, HEX))),
    named("Codecov token", "codecov_token", make=some_uuid),
    named("Snyk token", "snyk_token", make=some_uuid),
    token("Terraform Cloud token", (14, ALNUM), ".atlasv1.", (67, URLSAFE)),
    token("Pulumi token", "pul-", (40, HEX)),
    token("Vault service token", "hvs.", (95, URLSAFE)),
    token("Vault batch token", "hvb.", (140, URLSAFE)),
    named("Vault old token", "vault_token", make=shaped("s.", (24, ALNUM))),
    token("Doppler token", "dp.pt.", (43, ALNUM)),
    token("Postman key", "PMAK-", (24, HEX), "-", (34, HEX)),
    token("Tailscale key", "tskey-auth-", (11, ALNUM), "-", (32, ALNUM)),
    token("1Password service token", "ops_eyJ", (250, ALNUM)),
    token("Sentry token", "sntrys_eyJ", (120, ALNUM), "_", (43, BASE64)),
    token("Sentry user token", "sntryu_", (64, HEX)),
    Kind("Sentry address", hexadecimal(32), ("https://§@o123.ingest.sentry.io/456", "SENTRY_DSN=https://§@sentry.example.com/1")),
    token("Grafana service token", "glsa_", (32, ALNUM), "_", (8, HEX)),
    token("Grafana Cloud token", "glc_eyJ", (100, ALNUM)),
    token("New Relic key", "NRAK-", (27, UPPER + DIGITS)),
    named("Datadog key", "dd_api_key", "datadog_app_key", make=hexadecimal(40)),
    token("Dynatrace token", "dt0c01.", (24, UPPER + DIGITS), ".", (64, UPPER + DIGITS)),
    token("Honeycomb key", "hcaik_01", (61, LOWER + DIGITS)),
    named("PagerDuty key", "pagerduty_api_key", make=shaped((20, URLSAFE))),
    named("Splunk token", "splunk_hec_token", make=some_uuid),
    token("LaunchDarkly key", "sdk-", (8, HEX), "-", (4, HEX), "-4", (3, HEX), "-a", (3, HEX), "-", (12, HEX)),
    # Chat and mail
    *(
        token(f"Slack {what}", prefix, (12, DIGITS), "-", (13, DIGITS), "-", (24, ALNUM))
        for prefix, what in (
            ("xoxb-", "bot token"),
            ("xoxp-", "user token"),
            ("xoxa-2-", "workspace token"),
            ("xoxr-", "refresh token"),
            ("xoxs-", "session token"),
        )
    ),
    token("Slack browser token", "xoxc-", (12, DIGITS), "-", (12, DIGITS), "-", (64, HEX)),
    token("Slack browser cookie", "xoxd-", (120, ALNUM + "%")),
    token("Slack rotated token", "xoxe.xoxb-1-", (160, ALNUM)),
    token("Slack refresh token, new", "xoxe-1-", (146, ALNUM)),
    token("Slack app token", "xapp-1-A", (10, UPPER + DIGITS), "-", (13, DIGITS), "-", (64, HEX)),
    Kind("Slack webhook", shaped("T", (10, UPPER + DIGITS), "/B", (10, UPPER + DIGITS), "/", (24, ALNUM)), ("https://hooks.slack.com/services/§", 'url: "https://hooks.slack.com/services/§"')),
    Kind("Slack workflow webhook", shaped("T", (10, UPPER + DIGITS), "/", (13, DIGITS), "/", (32, HEX)), ("https://hooks.slack.com/triggers/§", "https://hooks.slack.com/workflows/§")),
    named("Slack signing secret", "slack_signing_secret", make=hexadecimal(32)),
    token("Discord token", "M", (25, ALNUM), ".", (6, ALNUM), ".", (38, URLSAFE)),
    Kind("Discord webhook", shaped((68, URLSAFE)), ("https://discord.com/api/webhooks/1234567890123456789/§", "https://discordapp.com/api/webhooks/1234567890123456789/§")),
    token("Telegram token", (10, "123456789"), ":AA", (33, URLSAFE), also=("https://api.telegram.org/bot§/getMe",)),
    Kind("Teams webhook", shaped((32, HEX), "/", (8, HEX)), ("https://x.webhook.office.com/webhookb2/a@b/IncomingWebhook/§",)),
    token("SendGrid key", "SG.", (22, URLSAFE), ".", (43, URLSAFE)),
    token("Mailgun key", "key-", (32, HEX)),
    token("Mailchimp key", (32, HEX), "-us", (2, "12")),
    token("Brevo key", "xkeysib-", (64, HEX), "-", (16, ALNUM)),
    token("Resend key", "re_", (8, ALNUM), "_", (24, ALNUM)),
    named("Postmark token", "postmark_server_token", make=some_uuid),
    token("Twilio key id", "SK", (32, HEX)),
    named("Twilio auth token", "twilio_auth_token", make=hexadecimal(32)),
    # Money and shops
    *(token(f"Stripe {prefix}", prefix, (24, ALNUM)) for prefix in ("sk_live_", "sk_test_", "rk_live_", "whsec_")),
    token("Shopify token", "shpat_", (32, HEX)),
    token("Shopify secret", "shpss_", (32, HEX)),
    token("Shopify custom token", "shpca_", (32, HEX)),
    token("Square token", "sq0atp-", (22, URLSAFE)),
    token("Square secret", "sq0csp-", (43, URLSAFE)),
    token("Square access token", "EAAA", (60, URLSAFE)),
    token("Braintree token", "access_token$production$", (16, LOWER + DIGITS), "$", (32, HEX)),
    token("Plaid token", "access-production-", (8, HEX), "-", (4, HEX), "-4", (3, HEX), "-a", (3, HEX), "-", (12, HEX)),
    token("Razorpay key", "rzp_live_", (14, ALNUM)),
    token("Flutterwave key", "FLWSECK-", (32, HEX), "-X"),
    named("PayPal secret", "paypal_client_secret", make=shaped("E", (79, URLSAFE))),
    # Models
    token("OpenAI key", "sk-", (20, ALNUM), "T3BlbkFJ", (20, ALNUM)),
    token("OpenAI project key", "sk-proj-", (74, URLSAFE), "T3BlbkFJ", (74, URLSAFE)),
    token("OpenAI service key", "sk-svcacct-", (74, URLSAFE), "T3BlbkFJ", (74, URLSAFE)),
    token("Anthropic key", "sk-ant-api03-", (93, URLSAFE), "AA"),
    token("Anthropic admin key", "sk-ant-admin01-", (93, URLSAFE), "AA"),
    token("Anthropic login token", "sk-ant-oat01-", (93, URLSAFE), "AA"),
    token("OpenRouter key", "sk-or-v1-", (64, HEX)),
    token("DeepSeek key", "sk-", (32, HEX)),
    token("Hugging Face token", "hf_", (34, LOWER + UPPER)),
    token("Groq key", "gsk_", (52, ALNUM)),
    token("Perplexity key", "pplx-", (48, ALNUM)),
    token("xAI key", "xai-", (80, ALNUM)),
    token("Replicate token", "r8_", (37, ALNUM)),
    token("NVIDIA key", "nvapi-", (64, URLSAFE)),
    token("LangSmith key", "lsv2_pt_", (32, HEX), "_", (10, HEX)),
    token("Pinecone key", "pcsk_", (6, ALNUM), "_", (63, ALNUM)),
    named("Cohere key", "cohere_api_key", make=shaped((40, ALNUM))),
    named("Mistral key", "mistral_api_key", make=shaped((32, ALNUM))),
    # Work
    token("Linear key", "lin_api_", (40, ALNUM)),
    token("Notion token", "ntn_", (46, ALNUM)),
    token("Notion old token", "secret_", (43, ALNUM)),
    token("Figma token", "figd_", (40, URLSAFE)),
    token("Airtable token", "pat", (14, ALNUM), ".", (64, HEX)),
    token("Asana token", "2/", (16, DIGITS), "/", (16, DIGITS), ":", (32, HEX)),
    token("Dropbox token", "sl.", (135, URLSAFE)),
    token("HubSpot token", "pat-na1-", (8, HEX), "-", (4, HEX), "-", (4, HEX), "-", (4, HEX), "-", (12, HEX)),
    token("Salesforce session", "00D", (12, ALNUM), "!", (96, ALNUM + "._")),
    token("Okta token", "00", (40, URLSAFE), also=("Authorization: SSWS §",)),
    token("Facebook token", "EAA", (1, "BCDEGM"), (120, ALNUM)),
    token("Twitter bearer token", "AAAAAAAAAAAAAAAAAAAAA", (22, ALNUM), "%3D", (50, ALNUM)),
    token("Mapbox secret token", "sk.eyJ", (80, ALNUM), ".", (22, ALNUM)),
    named("Algolia key", "algolia_admin_key", make=hexadecimal(32)),
    # Keys of several lines
    *(
        Kind(f"{label} in PEM", pem(label), BLOCK)
        for label in ("RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY", "PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "OPENSSH PRIVATE KEY", "SSH2 ENCRYPTED PRIVATE KEY")
    ),
    Kind("PEM with headers", pem("RSA PRIVATE KEY", head=("Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,0123456789ABCDEF0123456789ABCDEF", "")), BLOCK),
    Kind("PGP private key", pem("PGP PRIVATE KEY BLOCK", head=("Version: GnuPG v2", "")), BLOCK),
    Kind("PuTTY key", putty, BLOCK),
    Kind("PEM on one line", escaped_pem, ("key: \"§\"", "KEY='§'", '{"k":"§"}', "+KEY=§")),
    Kind("PEM twice escaped", lambda chance: escaped_pem(chance).replace("\\n", "\\\\n"), ('"{\\"k\\": \\"§\\"}"',)),
    Kind("PEM in string pieces", lambda chance: pem("PRIVATE KEY")(chance).replace("\n", '\\n"\n"'), ('key = ("§")', 'String k = "§";')),
    Kind("PEM in base64", encoded_pem, ("KEY=§", "  tls.key: §", "key_data: '§'", "x §")),
    token("age key", "AGE-SECRET-KEY-1", (58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L")),
    Kind("kubeconfig key", encoded_pem, ("    client-key-data: §", '"client-key-data": "§"')),
    Kind("kubeconfig token", shaped((60, URLSAFE)), ("- name: ann\n  user:\n    token: §",)),
    Kind("Kubernetes secret", lambda chance: encoded(chance, 15), ("apiVersion: v1\nkind: Secret\ndata:\n  a: §", "kind: Secret\nmetadata:\n  name: x\ntype: Opaque\ndata:\n  b: §\n  user: YW5u")),
    Kind("WireGuard key", lambda chance: encoded(chance, 32), ("[Interface]\nPrivateKey = §", "PresharedKey = §")),
    Kind("JSON web key", lambda chance: _urlsafe(chance.randbytes(32)), ('{"kty":"EC","crv":"P-256","x":"abc","d":"§"}', '{"kty": "oct", "k": "§"}')),
    Kind("JSON web token", jwt, (*ANYWHERE, "Authorization: Bearer §")),
    # HTTP
    Kind("bearer header", shaped((40, URLSAFE)), ("Authorization: Bearer §", "authorization: bearer §", "curl -H 'Authorization: Bearer §' https://x", '"Authorization": "Bearer §"', "headers={'Authorization': 'Bearer §'}", "> Authorization: Bearer §", "Proxy-Authorization: Bearer §", 'f.set("Authorization", "Bearer §")', "Bearer §", "sent Bearer § to x")),
    Kind("bearer header, hexadecimal", hexadecimal(64), ("Authorization: Bearer §", "with Bearer § now", '{"Authorization":"Bearer §"}')),
    Kind("basic header", pair, ("Authorization: Basic §", "authorization: basic §", '-H "Authorization: Basic §"', "Proxy-Authorization: Basic §", "Basic §")),
    Kind("token header", hexadecimal(40), ("Authorization: Token §", "Authorization: token §", "Authorization: ApiKey §", "Authorization: GenieKey §", "Authorization: §", "Authorization: Digest response=\"§\"")),
    Kind("cookie", shaped((32, URLSAFE)), ("Cookie: session=§", "Cookie: a=1; sid=§; theme=dark", "curl -b 'sessionid=§' https://x", "curl --cookie sid=§ https://x", "'Cookie': 'connect.sid=§'", "> cookie: JSESSIONID=§", "< Set-Cookie: sid=§; Path=/; HttpOnly", "Set-Cookie: token=§; Secure", '"set-cookie": "auth=§; Max-Age=1"', "document.cookie = 'auth=§'")),
    Kind("API key header", hexadecimal(32), ("X-Api-Key: §", "x-api-key: §", "-H 'X-API-Key: §'", "X-Auth-Token: §", "Private-Token: §", "'X-Vault-Token': '§'", "X-Amz-Security-Token: §", "Api-Key: §", "apikey: §", "Ocp-Apim-Subscription-Key: §", "X-CSRF-Token: §", "X-Access-Token: §", "X-GitHub-Token: §", "X-Functions-Key: §", "DD-API-KEY: §", 'request.setRequestHeader("X-Api-Key", "§")')),
    Kind("password in an address", password, ("https://ann:§@example.com/x", "postgres://app:§@db:5432/x", "mongodb+srv://u:§@c.mongodb.net", "redis://:§@cache:6379/0", "amqp://u:§@mq/", "ftp://u:§@h/f", "mysql+pymysql://u:§@h/d", "git remote add o https://u:§@h/r.git", "+URL = 'smtp://u:§@mail:587'", "socks5://u:§@p:1080", "jdbc:postgresql://u:§@h/d", "ssh://u:§@h", "custom+x://u:§@h")),
    Kind("token in an address", hexadecimal(40), ("https://§@example.com/r.git", "https://§:x-oauth-basic@github.com/a/b", "git+https://§@github.com/a/b", "url = https://§@h.example/x")),
    Kind("token in a query", shaped((32, ALNUM)), ("https://x/y?access_token=§", "/cb?a=1&token=§&b=2", "GET /x?api_key=§ HTTP/1.1", "https://x/?sig=§", "https://x/?key=§", "https://x/cb#access_token=§&type=bearer", "?code=1&client_secret=§", "https://x/y?auth=§", "https://x/?password=§", "wss://x/?ticket=§", "https://x/?X-Goog-Signature=§", "https://x/y?refresh_token=§", "https://x/y?signature=§", "&amp;apikey=§", "https://x/y?private_token=§", "https://x/y?id_token=§&a", "https://x/y?session=§", "https://x/?secret=§")),
    Kind("one-time password", shaped((32, UPPER + "234567")), ("otpauth://totp/x:ann?secret=§&issuer=x",)),
    # Commands
    Kind("password option", password, ("x --password §", "x --password=§", "x --password '§'", "x --passwd=§", "mysql -u root --password=§ db", "x --pass §", "mongo -u a -p §", "mongosh -p '§'", "sshpass -p § ssh h", "sshpass -p'§' ssh h", "mysql -uroot -p§ db", "mysqldump -h db -u app -p§ x", "redis-cli -h c -a § ping", "htpasswd -b f ann §", "openssl x -passin pass:§", "openssl x -passout 'pass:§'", "ldapsearch -D cn=x -w § -b y", "sqlcmd -U sa -P § -Q x", "smbclient //h/s -U ann%§", "PGPASSWORD=§ psql -h db", "MYSQL_PWD=§ mysql", "echo § | docker login -u ann --password-stdin", "net use z: \\\\h\\s /user:ann §", "zip -P § a.zip b", "unzip -P § a.zip", "7z x -p§ a.7z", "expect: spawn x --password \"§\"", "gpg --passphrase § -d f", "x --db-password §", "x --passphrase=§", "keytool -storepass § -list", "jarsigner -keypass § x", "sudo -S <<< §", "echo '§' | sudo -S ls")),
    Kind("token option", shaped((24, ALNUM)), ("x --token §", "x --token=§", "x --api-key §", "x --apikey=§", "x --secret §", "x --access-token '§'", "x --auth-token=§", "x --client-secret §", "x --private-token §", "x --secret-key=§", "gh auth login --with-token <<< §", "x --auth §", "x --bearer §", "x --oauth2-bearer §")),
    Kind("curl user", password, ("curl -u ann:§ https://x", "curl -u 'ann:§' https://x", "curl --user ann:§ https://x", "curl --user=ann:§ x", "curl -sS -u \"ann:§\" x", "curl -uann:§ x", "wget --user a --password § x", "wget --http-password=§ x", "curl --proxy-user ann:§ x", "curl -x http://ann:§@p:1 y", "curl -U ann:§ x", "http -a ann:§ GET x", "http --auth ann:§ GET x", "curl -d 'user=ann&password=§' x", "curl -d '{\"password\":\"§\"}' x", "curl -F password=§ x")),
    # Files of programs
    Kind("netrc", password, ("machine h.example login ann password §", "machine h login ann\n  password §", "default login ann password §", "machine h\nlogin ann\npassword §\n", "+machine h login a password §")),
    Kind("pgpass", password, ("db.example.com:5432:app:ann:§", "*:*:*:postgres:§", "localhost:5432:*:ann:§", "+db:5432:d:u:§")),
    Kind("my.cnf", password, ("[client]\nuser=ann\npassword=§", "[client]\npassword = \"§\"")),
    Kind("git credentials", shaped((40, HEX)), ("https://ann:§@github.com", "protocol=https\nhost=x\nusername=ann\npassword=§")),
    Kind("htpasswd", shaped("$apr1$", (8, ALNUM), "$", (22, ALNUM)), ("ann:§", "+bob:§")),
    Kind("bcrypt hash", shaped("$2b$12$", (53, ALNUM + "./")), ("ann:§", 'hash = "§"', "VALUES (1, '§')")),
    Kind("shadow entry", shaped("$6$", (16, ALNUM + "./"), "$", (86, ALNUM + "./")), ("root:§:19000:0:99999:7:::", "password: §")),
    Kind("argon2 hash", shaped("$argon2id$v=19$m=65536,t=3,p=4$", (22, BASE64), "$", (43, BASE64)), ("x §", "h: '§'")),
    Kind("Maven settings", password, ("<server><id>x</id><username>ann</username><password>§</password></server>", "    <password>§</password>", "+  <passphrase>§</passphrase>")),
    Kind("XML element", password, ("<password>§</password>", "<Password type='x'>§</Password>", "<ns:secret>§</ns:secret>", "<apiKey>§</apiKey>", "<clientSecret><![CDATA[§]]></clientSecret>", "<string name=\"api_key\">§</string>", "<key>Password</key><string>§</string>", "<key>apiToken</key>\n<string>§</string>", "<entry key=\"db.password\">§</entry>", "<property name=\"password\">§</property>", "<accessToken>§</accessToken>")),
    Kind("XML attribute", password, ('<db user="a" password="§"/>', "<x pwd='§'>", '<add key="ApiKey" value="§" />', '<add key="DbPassword" value="§"/>', '<property name="password" value="§"/>', '<add name="c" connectionString="Server=x;User Id=a;Password=§;"/>', '<param name="secret" value="§"/>', '<add value="§" key="Password"/>')),
    Kind("connection string", password, ("Server=x;Database=d;User Id=a;Password=§;", "Server=x;Uid=a;Pwd=§", "Data Source=x;Password='§';Encrypt=1", "host=x dbname=d user=a password=§ port=5432", "dsn = 'host=x password=§'", "Driver={X};UID=a;PWD=§;", "jdbc:mysql://h/d?user=a&password=§", "jdbc:sqlserver://h;user=a;password=§;", "amqps://h?password=§", "Provider=x;Jet OLEDB:Database Password=§;")),
    Kind("SQL password", password, ("CREATE USER ann IDENTIFIED BY '§';", "ALTER ROLE ann WITH PASSWORD '§';", "CREATE LOGIN ann WITH PASSWORD = '§';", "SET PASSWORD FOR ann = PASSWORD('§');", "CREATE ROLE x LOGIN PASSWORD '§'", "create user u with encrypted password '§'", "GRANT ALL ON x TO y IDENTIFIED BY '§'")),
    Kind("password in code", password, ("define('DB_PASSWORD', '§');", "'password' => '§',", ':password => "§"', "password: '§',", "self.password = '§'", "this.apiKey = \"§\";", "setPassword(\"§\")", "conn.set_password('§')", 'Password: "§",', "String password = \"§\";", "const apiKey = '§'", 'let secret: &str = "§";', "var dbPassword = @\"§\";", "$password = '§';", "password := \"§\"", "os.environ['DB_PASSWORD'] = '§'", "os.environ.setdefault('API_TOKEN', '§')", "process.env.SECRET = '§'", "config['secret_key'] = '§'", "#define WIFI_PASSWORD \"§\"", "private static final String SECRET = \"§\";", "ConvertTo-SecureString '§' -AsPlainText -Force", "auth=('ann', '§')", "HTTPBasicAuth('ann', '§')", "new NetworkCredential(\"ann\", \"§\")", "client.login('ann', '§')", "password = b'§'", "password = f\"§\"", "password ||= '§'", "if password == '§':", "getenv('DB_PASSWORD') ?: '§'", "os.getenv(\"API_KEY\", \"§\")", "process.env.API_KEY || '§'", "os.environ.get('SECRET', '§')", "password -> '§'", "(password . \"§\")", "{:password \"§\"}")),
    Kind("password in words", password, ("password: §", "the password is §", "Password is: §", "pwd: §", "login with password '§'", "password=§ user=ann", "msg=\"x\" token=§ level=info", "api key: §", "API key is §", "user ann, password §, host x", "Your password: §", "passphrase: §", "PIN: 1, secret: §", "Passwort: §", "mot de passe: §", "contraseña: §")),
    Kind("YAML values", password, ("password: §", "- password: §", "  db: {user: ann, password: §}", "password: !!str §", "password: >-\n  §\nuser: x", "password: |\n  §\nuser: x", "password: &pw §", "\"password\": §", "'secret': '§'", "smtp_auth_password: '§'", "api-key: §", "  - { name: DB_PASSWORD, value: §}", "- name: API_TOKEN\n  value: §", "+- name: API_TOKEN\n+  value: §", "env:\n  SECRET: §  # rotate")),
    Kind("TOML values", password, ('password = "§"', "password = '''§'''", 'password = """\n§\n"""', 'db = { user = "a", password = "§" }', '"api.key" = "§"')),
    Kind("JSON values", password, ('{"password":"§"}', '"password" : "§"', '{"db": {"pass": "§"}}', '{"key": "DB_PASSWORD", "value": "§"}', '{"name":"API_TOKEN","value":"§"}', '{"name": "API_TOKEN",\n "value": "§"}', "{'secret': '§'}", '{"tokens":["§"]}', '"password": ["§"]', '{"password":\n  "§"}', '"{\\"password\\":\\"§\\"}"', '{"access_token":"§","type":"x"}', '{"refreshToken":"§"}')),
    Kind("HCL values", password, ('password = "§"', 'variable "db_password" {\n  default = "§"\n}', 'api_key    = "§"', 'set_sensitive {\n  name = "password"\n  value = "§"\n}', 'secret_string = jsonencode({password = "§"})', 'password = <<EOT\n§\nEOT')),
    Kind("INI and properties", password, ("[db]\npassword=§", "password = §", "spring.datasource.password=§", "db.pass: §", "mail.smtp.password §", "  passwd=§", "secret=§ ; comment", "javax.net.ssl.keyStorePassword=§", "-Djavax.net.ssl.trustStorePassword=§ -jar x")),
    Kind("base64 value by name", lambda chance: encoded(chance, 24), ("APP_KEY=base64:§", "secret: §", "jwt_secret = '§'", "ENCRYPTION_KEY=§", "session_secret: §", "cookie_key: §", "signing-key: §", "master_key = §")),
    *(
        named(f"hexadecimal {what}", key, make=hexadecimal(64))
        for what, key in (("Rails secret", "secret_key_base"), ("encryption key", "encryption_key"), ("private key", "eth_private_key"), ("signing key", "signing_key"), ("session secret", "session_secret"), ("master key", "rails_master_key"), ("webhook secret", "webhook_secret"))
    ),
    named("API key by name", "api_key", "stripe_key" , make=shaped((32, ALNUM))),
    named("token by name", "access_token", "service_token", make=shaped((32, ALNUM))),
    named("secret by name", "app_secret", "client_secret", make=shaped((32, ALNUM))),
    named("password by name", "db_password", "root_passwd", "mysql_pwd"),
    named("passphrase by name", "ssh_passphrase"),
    named("credential by name", "service_credential", make=shaped((32, ALNUM))),
    named("Django secret", "django_secret_key", make=shaped((50, LOWER + DIGITS + "!%*-_+^"), "a")),
    Kind("WordPress salt", shaped((64, ALNUM + "!%*-_+^~.,|")), ("define('AUTH_KEY', '§');", "define( 'NONCE_SALT',       '§' );", "define('LOGGED_IN_KEY',    '§');")),
    # Our own
    Kind("Intercom HTTP token", hexadecimal(64), ("Authorization: Bearer §", "INTERCOM_TOKEN=§", '"INTERCOM_HTTP_TOKEN": "§"', "--token §", 'http_headers = { "Authorization" = "Bearer §" }', 'token: §', 'bearer_token = "§"')),
    Kind("Intercom ctl token", hexadecimal(64), ('{"token": "§", "verb": "status"}', "ctl_token=§", "ctl-token: §")),
)  # fmt: skip


def samples(seed: int = 7) -> Iterator[Sample]:
    """Every kind in each of its spellings, with a secret of its own."""
    for kind in KINDS:
        chance = random.Random(f"{seed}/{kind.name}")
        for spelling in kind.spellings:
            secret = kind.make(chance)
            yield Sample(kind.name, spelling, _placed(spelling, secret), _hidden(secret))


def _placed(spelling: str, secret: str) -> str:
    """The secret in the text; each further line of it begins as the line of its first does, where that is a margin."""
    before = spelling.partition("§")[0].rpartition("\n")[2]
    margin = before if before.strip(" +-\t") == "" else ""
    return spelling.replace("§", secret.replace("\n", "\n" + margin))


def _hidden(secret: str) -> tuple[str, ...]:
    if "\n" not in secret and "-----" not in secret:
        return (secret,)
    # Of a key: its material. The words around it are no secret.
    pieces = [piece.strip('" \\') for line in secret.split("\n") for piece in line.replace("\\\\n", "\\n").split("\\n")]
    lines = [piece for piece in pieces if len(piece) >= 16 and not set(piece) & set(" :") and "-----" not in piece]
    if "Public-Lines" in secret:
        lines = lines[5:]
    return tuple(lines)


def leaked(sample: Sample, masked: str) -> bool:
    """Whether any of the secret can be read: all of it, or ten characters of it in a row (half, if it is short)."""
    return any(
        secret[start : start + size] in masked
        for secret in sample.secrets
        for size in [min(len(secret), max(5, min(10, len(secret) // 2)))]
        for start in range(len(secret) - size + 1)
        if secret[start : start + size] not in sample.spelling
    )


def harmless(seed: int = 11, python_lines: int = 24_000) -> list[str]:
    """Lines without any secret: Python as it is installed here, and what machines write that looks random."""
    lines: list[str] = []
    for path in _sources():
        lines += path.read_text(errors="replace").split("\n")
        if len(lines) >= python_lines:
            break
    del lines[python_lines:]
    lines += _generated(random.Random(seed))
    return lines


#: Packages of the standard library and of the environment whose source is read: those that speak of passwords, tokens
#: and keys first.
_STANDARD = (
    "getpass", "netrc", "secrets", "ftplib", "imaplib", "smtplib", "poplib", "nntplib", "hmac", "hashlib", "uuid", "ssl",
    "tokenize", "token", "shlex", "tarfile", "zipfile", "argparse", "configparser", "optparse", "socket", "subprocess",
    "inspect", "pydoc", "turtle", "typing", "ast", "dis", "mailbox", "locale", "statistics", "datetime", "_pydecimal",
)  # fmt: skip
_DIRECTORIES = ("http", "urllib", "email", "json", "xmlrpc", "logging", "asyncio", "importlib", "wsgiref", "sqlite3")
_INSTALLED = ("keyring", "httpx2", "slack_sdk", "starlette", "hypercorn", "mcp", "jsonschema", "attr")


def _sources() -> Iterator[Path]:
    standard = Path(sysconfig.get_path("stdlib"))
    installed = Path(sysconfig.get_path("purelib"))
    yield from (path for name in _STANDARD if (path := standard / f"{name}.py").exists())
    for root, names in ((standard, _DIRECTORIES), (installed, _INSTALLED)):
        for name in names:
            yield from sorted((root / name).rglob("*.py"))


def _generated(chance: random.Random) -> Iterator[str]:
    def digest(name: str) -> str:
        return hashlib.new(name, chance.randbytes(8)).hexdigest()

    for _ in range(300):
        sha512 = base64.b64encode(chance.randbytes(64)).decode()
        sha256 = base64.b64encode(chance.randbytes(32)).decode()
        yield f"commit {digest('sha1')}"
        yield f"index {digest('sha1')[:7]}..{digest('sha1')[:7]} 100644"
        yield f'    {{file = "x-1.0-py3-none-any.whl", hash = "sha256:{digest("sha256")}"}},'
        yield f"    --hash=sha256:{digest('sha256')} \\"
        yield f'checksum = "{digest("sha256")}"'
        yield f'      "integrity": "sha512-{sha512}",'
        yield f"  integrity sha512-{sha512}"
        yield f"golang.org/x/net v0.{chance.randrange(99)}.0 h1:{sha256}"
        yield f"id: {some_uuid(chance)}"
        yield f'"request_id": "{some_uuid(chance)}", "trace_id": "{digest("md5")}", "span_id": "{digest("md5")[:16]}"'
        yield f"![x](data:image/png;base64,iVBORw0KGgo{base64.b64encode(chance.randbytes(120)).decode()})"
        yield f"https://example.com/assets/app.{digest('md5')[:8]}.js?v={digest('md5')[:12]}"
        yield f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{''.join(chance.choices(BASE64, k=43))} ann@example.com"
        yield f"image: registry.example.com/app@sha256:{digest('sha256')}"
        yield f'ETag: "{digest("md5")}"'
        yield f"M{chance.random() * 99:.3f},{chance.random() * 99:.3f}c{chance.random():.4f},{-chance.random():.4f}z"
        yield f"https://example.slack.com/archives/C{''.join(chance.choices(UPPER + DIGITS, k=10))}/p1700000000{chance.randrange(10**6):06}"
        yield f"2026-11-23T08:00:00.{chance.randrange(10**6):06}Z INFO request {digest('md5')} took {chance.randrange(999)} ms"
        yield f"    at com.example.AbstractTokenFactory{chance.randrange(99)}.createToken(AbstractTokenFactory.java:{chance.randrange(999)})"
        yield f"| {digest('sha1')[:12]} | {chance.randrange(9999)} | ok |"
