"""Secrets that their own shape gives away: the tokens of services, each with its issuer's prefix or form.

A rule has the form of gitleaks and TruffleHog: an id, keywords, a pattern, and the group of the secret. All keywords
are searched at once, so a rule costs nothing for a text that contains none of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

from attrs import field, frozen

Judge = Callable[[str, str], bool]


@frozen
class Rule:
    """A rule, for lines that contain one of `keywords` (lower case), or for all lines if there are none.

    Each match of the pattern `source` is a secret if `judge` accepts its groups `name` and `value`. The group `value`
    is the secret, always within one line. The match may extend over `reach` more lines. `kind` replaces the secret for
    people. Every repetition in a pattern is bounded, so the time is proportional to the length of the text.
    """

    kind: str
    keywords: tuple[str, ...]
    source: str = field(repr=False)
    judge: Judge = field(repr=False)
    flags: int = 0
    reach: int = 0

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled pattern. It is compiled on first use, because all rules together take 0.2 s."""
        return _compiled(self.source, self.flags)


@cache
def _compiled(source: str, flags: int) -> re.Pattern[str]:
    return re.compile(source, flags)


def rule(kind: str, keywords: str, pattern: str, judge: Judge, *, flags: int = 0, reach: int = 0) -> Rule:
    """Create a rule from keywords that are separated by spaces. In a pattern without these groups, the value is the
    whole match and the name is empty."""
    if "(?P<value>" not in pattern:
        pattern = f"(?P<value>{pattern})"
    if "(?P<name>" not in pattern:
        pattern = f"(?P<name>){pattern}"
    return Rule(kind, tuple(keywords.split()), pattern, judge, flags, reach)


def always(_name: str, _value: str) -> bool:
    """Accept every match: the judge for unique shapes."""
    return True


def _rule(kind: str, keywords: str, *patterns: str) -> tuple[Rule, ...]:
    return tuple(rule(kind, keywords, pattern, always) for pattern in patterns)


#: A token must not follow these characters, because it would be the middle of something longer.
_B = r"(?<![A-Za-z0-9])"
_H = "[0-9a-f]"
_UUID = f"{_H}{{8}}-{_H}{{4}}-{_H}{{4}}-{_H}{{4}}-{_H}{{12}}"

SHAPES: Final[tuple[Rule, ...]] = (
    # Clouds
    *_rule("AWS access key", "akia asia abia acca a3t", rf"{_B}(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}(?![A-Z0-9])"),
    *_rule(
        "AWS secret key",
        "akia asia masked",
        r"(?:\b(?:AKIA|ASIA)[A-Z2-7]{16}|\[masked: AWS access key\])[\s\"']{0,4}[,:;|\s][\s\"']{0,4}(?P<value>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    *_rule("AWS session token", "iqojb3jpz2lux2vj fwogzxivyxdz", rf"{_B}(?:IQoJb3JpZ2luX2Vj|FwoGZXIvYXdz)[A-Za-z0-9/+=]{{50,3000}}"),
    *_rule("AWS Bedrock key", "absk", rf"{_B}ABSK[A-Za-z0-9+/]{{80,270}}={{0,2}}"),
    *_rule("Amazon MWS token", "amzn.mws.", rf"amzn\.mws\.{_UUID}"),
    *_rule("Google key", "aiza gocspx- ya29.", r"AIza[A-Za-z0-9_-]{35}", r"GOCSPX-[A-Za-z0-9_-]{20,60}", r"ya29\.[\w-]{20,2000}"),
    *_rule("Google refresh token", "1//0", rf"{_B}1//0[A-Za-z0-9_-]{{40,200}}"),
    *_rule("Firebase key", ":apa91b", rf"{_B}[A-Za-z0-9_-]{{6,32}}:APA91b[A-Za-z0-9_-]{{80,250}}"),
    *_rule("Azure client secret", "q~", r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~-])"),
    *_rule("Azure DevOps token", "azdo", rf"{_B}[A-Za-z0-9]{{76}}AZDO[A-Za-z0-9]{{4}}(?![A-Za-z0-9])"),
    *_rule("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", rf"do[opr]_v1_{_H}{{64}}"),
    *_rule("Heroku key", "hrku-", r"HRKU-[A-Za-z0-9_-]{30,80}"),
    *_rule("Cloudflare key", "v1.0-", rf"{_B}v1\.0-{_H}{{24}}-{_H}{{100,160}}"),
    *_rule("Fly token", "flyv1 fo1_", r"FlyV1 fm\d[ar]?_[A-Za-z0-9+/=,_-]{50,4000}", rf"{_B}fo1_[A-Za-z0-9_-]{{40,60}}"),
    *_rule("Netlify token", "nfp_", rf"{_B}nfp_[A-Za-z0-9]{{36}}"),
    *_rule("Supabase token", "sbp_ sb_secret_", rf"{_B}sbp_(?:v0_)?{_H}{{40}}", r"sb_secret_[A-Za-z0-9_-]{20,60}"),
    *_rule("PlanetScale secret", "pscale_", r"pscale_(?:pw|tkn|oauth)_[\w=.-]{32,64}"),
    *_rule("Neon key", "napi_", rf"{_B}napi_[a-z0-9]{{60,70}}"),
    *_rule("Alibaba key", "ltai", rf"{_B}LTAI[A-Za-z0-9]{{12,20}}(?![A-Za-z0-9])"),
    *_rule("Yandex key", "aqvn y0_", rf"{_B}AQVN[A-Za-z0-9_-]{{35,38}}", rf"{_B}y0_[A-Za-z0-9_-]{{50,70}}"),
    *_rule("Tencent key", "akid", rf"{_B}AKID[A-Za-z0-9]{{32}}(?![A-Za-z0-9])"),
    *_rule("Databricks token", "dapi", rf"{_B}dapi{_H}{{32}}(?:-\d)?"),
    *_rule("Scaleway key", "scw", rf"{_B}SCW[A-Z0-9]{{17}}(?![A-Z0-9])"),
    # Code, packages, builds
    *_rule("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", rf"{_B}gh[pousr]_[A-Za-z0-9]{{36,255}}", r"github_pat_[A-Za-z0-9_]{22,255}"),
    *_rule(
        "GitLab token",
        "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- glffct- glwt- gr1348941 _gitlab_session",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct|wt)-[A-Za-z0-9_.-]{20,300}",
        r"GR1348941[A-Za-z0-9_-]{20,40}",
        r"_gitlab_session=(?P<value>[0-9a-z]{32})",
    ),
    *_rule("Atlassian token", "atatt3 atctt3 atbb", r"AT[AC]TT3[A-Za-z0-9_=-]{100,250}", rf"{_B}ATBB[A-Za-z0-9]{{32}}"),
    *_rule("npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    *_rule("PyPI token", "pypi-ageichlwas5vcmc pypi-agendgvzdc5wexbplm9yz", r"pypi-AgE[IN][A-Za-z0-9_-]{50,1000}"),
    *_rule("RubyGems key", "rubygems_", rf"rubygems_{_H}{{48}}"),
    *_rule("Cargo token", "cio", rf"{_B}cio(?=[A-Za-z]{{0,31}}\d)[A-Za-z0-9]{{32}}(?![A-Za-z0-9])"),
    *_rule("NuGet key", "oy2", rf"{_B}oy2[a-z0-9]{{43}}(?![a-z0-9])"),
    *_rule("Docker Hub token", "dckr_", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{27,60}"),
    *_rule("CircleCI token", "ccipat_ ccipra_", rf"CCIP(?:AT|RA)_[A-Za-z0-9]{{22}}_{_H}{{40}}"),
    # Our own, of the page's API.
    *_rule("Intercom token", "intercom_", rf"intercom_{_H}{{64}}"),
    *_rule("Buildkite token", "bkua_", rf"bkua_{_H}{{40}}"),
    *_rule("SonarQube token", "squ_ sqp_ sqa_", rf"{_B}sq[upa]_{_H}{{40}}"),
    *_rule("Artifactory key", "akc cmvmdgtu", rf"{_B}AKC[a-z0-9][A-Za-z0-9]{{60,80}}", rf"{_B}cmVmdGtu[A-Za-z0-9]{{56}}"),
    *_rule("Terraform token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}"),
    *_rule("Pulumi token", "pul-", rf"{_B}pul-{_H}{{40}}"),
    *_rule("Vault token", "hvs. hvb. hvr.", rf"{_B}hv[sbr]\.[A-Za-z0-9_-]{{20,300}}"),
    *_rule("Doppler token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    *_rule("Postman key", "pmak-", rf"PMAK-{_H}{{24}}-{_H}{{34}}"),
    *_rule("Tailscale key", "tskey-", r"tskey-[a-z]{1,20}-[A-Za-z0-9]{6,40}(?:-[A-Za-z0-9]{10,60})?"),
    *_rule("ngrok token", "ngrok", rf"{_B}ak_[A-Za-z0-9]{{20,40}}(?=.{{0,40}}ngrok)"),
    *_rule("1Password token", "ops_eyj a3-", r"ops_eyJ[A-Za-z0-9+/=_-]{200,4000}", rf"{_B}A3-[A-Z0-9]{{6}}-(?:[A-Z0-9]{{11}}|[A-Z0-9]{{6}}-[A-Z0-9]{{5}})-[A-Z0-9]{{5}}-[A-Z0-9]{{5}}-[A-Z0-9]{{5}}"),
    *_rule("Sentry token", "sntrys_ sntryu_ sntrya_", r"sntrys_eyJ[A-Za-z0-9+/=_-]{60,500}", rf"sntry[ua]_{_H}{{64}}"),
    *_rule("Grafana token", "glsa_ glc_ eyjriji6", rf"glsa_[A-Za-z0-9]{{32}}_{_H}{{8}}", r"glc_[A-Za-z0-9+/=]{32,500}", r"eyJrIjoi[A-Za-z0-9]{60,500}={0,2}"),
    *_rule("New Relic key", "nrak- nrjs- nraa- nrii- nrsp- nrra-", r"NR(?:AK|JS|AA|II|SP|RA)-[A-Za-z0-9_-]{19,44}"),
    *_rule("Dynatrace token", "dt0", r"dt0[a-z]\d{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    *_rule("Honeycomb key", "hcaik_ hcamk_ hcxik_ hcxlk_", r"hc[a-z]{2}k_\d{2}[a-z0-9]{50,70}"),
    *_rule("LaunchDarkly key", "sdk- api-", rf"{_B}(?:sdk|api)-{_UUID}"),
    *_rule("JetBrains token", "perm:", rf"{_B}perm:[A-Za-z0-9+/=]{{8,80}}\.[A-Za-z0-9+/=]{{4,80}}\.[A-Za-z0-9]{{20,60}}"),
    *_rule("Snyk token", "snyk_", r"snyk_(?:uat|sat)\.[A-Za-z0-9_.-]{30,200}"),
    *_rule("Prefect key", "pnu_", rf"{_B}pnu_[A-Za-z0-9]{{36}}"),
    *_rule("ReadMe key", "rdme_", rf"{_B}rdme_[a-z0-9]{{70}}"),
    *_rule("Scalingo token", "tk-us-", r"tk-us-[A-Za-z0-9_-]{48}"),
    # Chat and mail
    *_rule(
        "Slack token",
        "xox xapp-",
        r"xox[abcdeoprst](?:-\d)?-[A-Za-z0-9%-]{10,400}",
        r"xoxe(?:\.xox[bp])?-[A-Za-z0-9-]{10,400}",
        r"xapp-\d-[A-Za-z0-9-]{10,200}",
    ),
    *_rule(
        "Slack webhook",
        "hooks.slack",
        r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_-]{20,200}",
    ),
    *_rule(
        "webhook address",
        "webhook",
        r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{15,22}/(?P<value>[A-Za-z0-9_-]{40,100})",
        r"office\.com/webhook(?:b2)?/[^\s\"'<>]{1,120}/IncomingWebhook/(?P<value>[A-Za-z0-9/_-]{20,160})",
        r"/api/webhook/(?P<value>[A-Za-z0-9_-]{24,100})",
    ),
    *_rule("Discord token", "", r"(?<![A-Za-z0-9_-])[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,44}(?![A-Za-z0-9_-])"),
    *_rule("Telegram token", ":aa", r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])"),
    *_rule("SendGrid key", "sg.", rf"{_B}SG\.[A-Za-z0-9_-]{{16,32}}\.[A-Za-z0-9_-]{{16,64}}"),
    *_rule("Mailgun key", "key-", rf"{_B}key-{_H}{{32}}(?![0-9a-f])", rf"{_B}{_H}{{32}}-{_H}{{8}}-{_H}{{8}}(?![0-9a-f-])"),
    *_rule("Mailchimp key", "-us", rf"{_B}{_H}{{32}}-us\d{{1,2}}(?!\d)"),
    *_rule("Brevo key", "xkeysib- xsmtpsib-", rf"x(?:key|smtp)sib-{_H}{{64}}-[A-Za-z0-9]{{16}}"),
    *_rule("Resend key", "re_", rf"{_B}re_[A-Za-z0-9]{{8}}_[A-Za-z0-9]{{24}}(?![A-Za-z0-9])"),
    *_rule("Mandrill key", "md-", rf"{_B}md-[A-Za-z0-9_-]{{22}}(?![A-Za-z0-9_-])"),
    *_rule("Twilio key", "sk", rf"{_B}SK{_H}{{32}}(?![0-9a-f])"),
    # Payment and shops
    *_rule("Stripe key", "_live_ _test_ _prod_ whsec_", r"[srp]k_(?:live|test|prod)_[A-Za-z0-9]{16,250}", r"whsec_[A-Za-z0-9+/=]{20,100}"),
    *_rule("Shopify token", "shp", r"shp(?:at|ss|ca|pa|ua|tk)_[A-Za-z0-9]{32,64}"),
    *_rule("Square secret", "sq0 eaaa", r"sq0[a-z]{3}-[A-Za-z0-9_-]{22,60}", rf"{_B}EAAA[A-Za-z0-9_-]{{56,62}}(?![A-Za-z0-9_-])"),
    *_rule("Braintree token", "access_token$", rf"access_token\$(?:production|sandbox)\$[a-z0-9]{{16}}\${_H}{{32}}"),
    *_rule("Plaid token", "access-", rf"access-(?:production|development|sandbox)-{_UUID}"),
    *_rule("Razorpay key", "rzp_", r"rzp_(?:live|test)_[A-Za-z0-9]{14,24}"),
    *_rule("Flutterwave key", "flwseck", r"FLWSECK(?:_TEST)?-[A-Za-z0-9-]{12,60}"),
    *_rule("Adyen key", "aqe", rf"{_B}AQE[a-z][A-Za-z0-9+/=]{{40,300}}-[A-Za-z0-9+/=]{{20,80}}-[^\s\"'<>]{{8,40}}"),
    *_rule("Mercado Pago token", "app_usr-", rf"APP_USR-\d{{8,20}}-\d{{6}}-{_H}{{32}}(?:-\d{{4,12}})?"),
    *_rule("EasyPost token", "ezak ezta", rf"{_B}EZ[AT]K[A-Za-z0-9]{{54}}"),
    # AI models
    *_rule("OpenAI key", "sk-", r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,250}", r"\bsk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}"),
    *_rule("Anthropic key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,200}"),
    *_rule("OpenRouter key", "sk-or-", rf"sk-or-v1-{_H}{{64}}"),
    *_rule("API key", "sk-", rf"{_B}sk-{_H}{{32,64}}(?![0-9a-z])", rf"{_B}sk-(?=[a-zA-Z]{{0,40}}\d)[A-Za-z0-9]{{40,64}}(?![A-Za-z0-9_-])"),
    *_rule("ElevenLabs key", "sk_", rf"{_B}sk_{_H}{{48}}(?![0-9a-f])"),
    *_rule("Hugging Face token", "hf_ api_org_", rf"{_B}(?:hf|api_org)_[A-Za-z]{{30,60}}(?![A-Za-z0-9_])", rf"{_B}hf_[A-Za-z0-9]{{34,60}}(?![A-Za-z0-9_])"),
    *_rule("Groq key", "gsk_", rf"{_B}gsk_[A-Za-z0-9]{{48,56}}"),
    *_rule("Perplexity key", "pplx-", rf"{_B}pplx-[A-Za-z0-9]{{40,60}}"),
    *_rule("xAI key", "xai-", rf"{_B}xai-[A-Za-z0-9]{{70,90}}"),
    *_rule("Replicate token", "r8_", rf"{_B}r8_[A-Za-z0-9]{{37}}(?![A-Za-z0-9])"),
    *_rule("NVIDIA key", "nvapi-", rf"{_B}nvapi-[A-Za-z0-9_-]{{60,80}}"),
    *_rule("LangSmith key", "lsv2_", rf"lsv2_(?:pt|sk)_{_H}{{32}}_{_H}{{10}}"),
    *_rule("Pinecone key", "pcsk_", r"pcsk_[A-Za-z0-9]{5,7}_[A-Za-z0-9]{60,70}"),
    *_rule("Tavily key", "tvly-", r"tvly-(?:dev-|prod-)?[A-Za-z0-9]{28,40}"),
    *_rule("Fireworks key", "fw_", rf"{_B}fw_[A-Za-z0-9]{{22,26}}(?![A-Za-z0-9_])"),
    *_rule("Cerebras key", "csk-", rf"{_B}csk-[a-z0-9]{{48}}"),
    # Work tools
    *_rule("Linear key", "lin_api_ lin_oauth_", r"lin_(?:api|oauth)_[A-Za-z0-9]{40,64}"),
    *_rule("Notion token", "ntn_ secret_", rf"{_B}ntn_[A-Za-z0-9]{{40,50}}", rf"{_B}secret_(?=[A-Za-z]{{0,40}}\d)[A-Za-z0-9]{{43}}(?![A-Za-z0-9_])"),
    *_rule("Figma token", "figd_ figu_ figo_", r"fig[dou]_[A-Za-z0-9_-]{38,60}"),
    *_rule("Airtable token", "pat", rf"{_B}pat[A-Za-z0-9]{{14}}\.{_H}{{64}}"),
    *_rule("Asana token", "", rf"(?<![\w/])[12]/\d{{12,20}}(?:/\d{{12,20}})?:{_H}{{32}}"),
    *_rule("Dropbox token", "sl.", rf"{_B}sl\.(?:u\.)?[A-Za-z0-9_-]{{130,2000}}"),
    *_rule("HubSpot token", "pat-", rf"{_B}pat-[a-z]{{2}}\d-{_UUID}"),
    *_rule("Salesforce token", "00d", rf"{_B}00D[A-Za-z0-9]{{12,15}}![A-Za-z0-9._]{{60,200}}"),
    *_rule("Okta token", "00", r"(?<![A-Za-z0-9_-])00(?=[A-Za-z0-9_-]{0,39}[G-Zg-z])(?=[A-Za-z0-9_-]{0,39}[A-Z])[A-Za-z0-9_-]{40}(?![A-Za-z0-9_-])"),
    *_rule("Facebook token", "eaa", r"(?<![A-Za-z0-9+/])EAA[A-Z](?=[A-Za-z]{0,80}\d)[A-Za-z0-9]{80,300}"),
    *_rule("Twitter token", "aaaaaaaaaaaaaaaaaaaaa", rf"{_B}A{{20}}[A-Za-z0-9%]{{60,120}}"),
    *_rule("Mapbox token", "sk.eyj", r"sk\.eyJ[A-Za-z0-9_-]{40,200}\.[A-Za-z0-9_-]{20,30}"),
    *_rule("Contentful token", "cfpat-", r"CFPAT-[A-Za-z0-9_-]{40,60}"),
    *_rule("Typeform token", "tfp_", rf"{_B}tfp_[A-Za-z0-9_.=-]{{40,70}}"),
    *_rule("Frame token", "fio-u-", r"fio-u-[A-Za-z0-9_=-]{60,70}"),
    *_rule("Duffel token", "duffel_", r"duffel_(?:test|live)_[A-Za-z0-9_=-]{40,50}"),
    *_rule("Clojars token", "clojars_", r"CLOJARS_[a-z0-9]{60}"),
    *_rule("Defined token", "dnkey-", r"dnkey-[a-z0-9=_-]{26}-[a-z0-9=_-]{52}"),
    # Keys and sessions that belong to no single service
    *_rule("private key", "", r"(?<![A-Za-z0-9+/=_-])[5KL](?=[A-Za-z]{0,20}\d)[1-9A-HJ-NP-Za-km-z]{50,51}(?![A-Za-z0-9+/=_-])"),
    *_rule("age key", "age-secret-key-", r"AGE-SECRET-KEY-(?:PQ-)?1[A-Z0-9]{50,2100}"),
    *_rule("private key", "ls0tls1crudjti", r"LS0tLS1CRUdJTi(?:[A-Za-z0-9+/]{0,40}UFJJVkFURSB|[A-Za-z0-9+/]{0,40}QUklWQVRFI|[A-Za-z0-9+/]{0,40}BSSVZBVEUg)[A-Za-z0-9+/]{20,40000}={0,2}"),
    *_rule("JSON Web Token", "eyj", rf"{_B}eyJ[A-Za-z0-9_=-]{{8,2000}}\.(?:eyJ[A-Za-z0-9_=-]{{4,6000}}|[A-Za-z0-9_=-]{{0,1000}}\.[A-Za-z0-9_=-]{{0,1000}}\.[A-Za-z0-9_=-]{{0,6000}})(?:\.[A-Za-z0-9_=/+-]{{0,2000}})?"),
    *_rule(
        "password hash",
        "$",
        r"\$(?:apr1|1|5|6|y|gy|7)\$(?:rounds=\d{1,9}\$)?[A-Za-z0-9./$]{1,86}\$[A-Za-z0-9./]{22,86}",
        r"\$2[abxy]?\$\d\d\$[A-Za-z0-9./]{53}",
        r"\$argon2(?:id|i|d)\$[A-Za-z0-9=,$+/.-]{20,200}",
        r"\bpbkdf2_sha\d{1,3}\$\d{1,8}\$[A-Za-z0-9./]{4,40}\$[A-Za-z0-9+/=]{20,90}",
        r"\{S?SHA\}[A-Za-z0-9+/]{20,60}={0,2}",
    ),
)  # fmt: skip
