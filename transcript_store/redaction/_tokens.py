"""Which tokens are recognizable by their form? Each starts with letters that its service chose for that purpose."""

from __future__ import annotations

from typing import NamedTuple

# ---- kinds ----
#
# What a form of secret is, and the pieces that several forms share.


class Kind(NamedTuple):
    """A form of secret: ``[redacted:<name>]`` stands for it."""

    name: str
    literals: tuple[str, ...]
    """How it starts. Searching for a literal is far faster than for a pattern, and most texts contain none."""
    rest: str
    """What follows the literal. The secret is the group ``secret``, or literal and rest. No repetition is within another one, unless what
    stands between two rounds ends the first, and none gives back more than 256 characters. So it takes time by the length of what it
    matches."""
    is_anywhere: bool = False
    """True if a letter may precede the literal."""
    is_alone: bool = False
    """True if ``+``, ``/`` and ``-`` may not stand before it either: within other base64, or within a name, it is none."""
    is_random: bool = False
    """True if the secret must not look like a chosen name."""
    is_strong: bool = False
    """True if the secret must look like a password or a key, and unlike a word."""
    is_basic: bool = False
    """True if the secret must be ``user:password`` in base64."""
    before: str = ""
    """The part of the secret directly before the literal: one character class of a fixed width for each part."""
    width: int = 0
    """How many characters that is."""
    near: str = ""
    """A pattern for the ``NEAR`` characters before the literal, which ends there if it ends in ``$``."""
    each: str = ""
    """Where ``secret`` has several of them, each by itself: their pattern, with a group ``secret``."""


NEAR = 256


def secret_kind(name: str, literals: str, rest: str, *, anywhere: bool = False, **more: object) -> Kind:
    """A kind, and its literals with blanks between them; ``+`` stands for a blank within one."""
    return Kind(name, tuple(literal.replace("+", " ") for literal in literals.split()), rest, anywhere, **more)  # type: ignore[arg-type]


DONE = r"\[redacted:[a-z0-9-]{1,40}\]"
"""The placeholder for a secret."""
CHARACTER = r"[A-Za-z0-9_-]"
ENDS = r"(?![A-Za-z0-9+/=_-])"
"""Nothing that could continue it follows, in either base64."""
QUOTE = r"[\"'`\\]"
SET = (
    rf"(?:{QUOTE}{{0,4}}(?: ?\[[^\]\s]{{0,32}}\])?\s{{0,4}}[:=]>?\s{{0,4}}(?:b(?=[\"']))?{QUOTE}{{0,4}}"
    rf"|{QUOTE}{{1,4}}\s{{0,4}},(?:\s|\\[nrt]){{0,32}}(?:{QUOTE}{{1,4}}[Vv]alue{QUOTE}{{1,4}}\s{{0,4}}:\s{{0,4}})?"
    rf"(?:b(?=[\"']))?{QUOTE}{{1,4}}|%3[AaDd](?:%20|\+){{0,2}})"
)
"""Between a name and its value, in any notation: ``"Name": "``, ``NAME=``, ``\"name\":\"``, ``Name [as it is set]: ``, ``'name' => '``;
quoted, as a pair: ``('Name', 'value')``, ``"name":"Name","value":"``; and in a URL, ``Name%3A%20``.
"""


# ---- tokens ----

_UUID = r"[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}"
_A_CAPITAL = r"(?=[a-z0-9_.-]{0,40}[A-Z])"
"""Among the first characters: words with hyphens or underscores have none."""
_A_DIGIT = r"(?=[A-Za-z_.-]{0,80}[0-9])"


def _of_azure(literals: str, width: int, rest: str, *, plus: bool = False) -> Kind:
    """A key in base64 whose literal stands behind so many characters of it, and a ``+`` if the literal begins with one."""
    before = rf"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{{{width}}}" + r"\+" * plus
    return secret_kind("azure-key", literals, rest + ENDS, before=before, width=width + plus, anywhere=True)


TOKENS: tuple[Kind, ...] = (
    secret_kind("anthropic-key", "sk-ant-", CHARACTER + "{20,}+"),
    secret_kind("openrouter-key", "sk-or-", r"(?:v\d-)?[A-Za-z0-9]{32,}+"),
    secret_kind("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", CHARACTER + "{20,}+"),
    secret_kind("openai-key", "sk-", r"[A-Za-z0-9]{32,}+"),
    secret_kind("google-key", "AIza", CHARACTER + r"{35}(?!" + CHARACTER + ")"),
    secret_kind("google-token", "ya29. GOCSPX-", r"(?:[A-Za-z0-9]{1,4}\.)?" + CHARACTER + "{20,}+"),
    secret_kind("aws-key-id", "AKIA ASIA ABIA ACCA", r"[A-Z2-7]{16}(?![A-Za-z0-9_])"),
    secret_kind("github-token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"[A-Za-z0-9_]{36,}+"),
    secret_kind(
        "gitlab-token",
        "glpat- gldt- glrt- gloas- glcbt- glptt- glft- glimt- glagent- glsoat-",
        r"[A-Za-z0-9_.-]{20,}+",
    ),
    secret_kind("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_", r"[A-Za-z0-9]{16,}+"),
    secret_kind("stripe-key", "whsec_", r"[A-Za-z0-9+/=]{24,}+"),
    secret_kind("npm-token", "npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9_])"),
    secret_kind("pypi-token", "pypi-AgE", CHARACTER + "{50,}+"),
    secret_kind("huggingface-token", "hf_ api_org_", r"[A-Za-z0-9]{30,}+(?![_])"),
    secret_kind("xai-key", "xai-", r"[A-Za-z0-9]{60,}+"),
    secret_kind("groq-key", "gsk_", r"[A-Za-z0-9]{40,}+"),
    secret_kind("perplexity-key", "pplx-", r"[A-Za-z0-9]{40,}+"),
    secret_kind(
        "telegram-token",
        ":AA",
        r"(?<=\d{8}:AA)(?P<secret>" + CHARACTER + r"{33})(?!" + CHARACTER + ")",
        anywhere=True,
    ),
    secret_kind("sendgrid-key", "SG.", CHARACTER + r"{20,24}\." + CHARACTER + "{40,45}"),
    secret_kind("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"[a-f0-9]{64}"),
    secret_kind("docker-token", "dckr_pat_ dckr_oat_", CHARACTER + "{20,}+"),
    secret_kind("databricks-token", "dapi", r"[a-f0-9]{32}(?![A-Za-z0-9_])"),
    secret_kind("vault-token", "hvs. hvb.", CHARACTER + "{24,}+"),
    secret_kind("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"[a-fA-F0-9]{32}"),
    secret_kind("linear-key", "lin_api_", r"[A-Za-z0-9]{32,}+"),
    secret_kind("replicate-token", "r8_", r"[A-Za-z0-9]{37,}+"),
    secret_kind("tavily-key", "tvly-", r"(?:dev-|prod-)?[A-Za-z0-9]{32,}+"),
    secret_kind("langsmith-key", "lsv2_pt_ lsv2_sk_", r"[a-f0-9]{32}_[a-f0-9]{10}"),
    secret_kind("supabase-token", "sbp_", r"[a-f0-9]{40}"),
    secret_kind("postman-key", "PMAK-", r"[a-f0-9]{24}-[a-f0-9]{34}"),
    secret_kind("grafana-token", "glsa_", r"[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}"),
    secret_kind("newrelic-key", "NRAK-", r"[A-Z0-9]{27}(?![A-Za-z0-9_])"),
    secret_kind("atlassian-token", "ATATT3xFfGF0", r"[A-Za-z0-9=_-]{60,}+"),
    secret_kind("sentry-token", "sntryu_ sntrys_", r"[A-Za-z0-9+/=_-]{60,}+"),
    secret_kind("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa.", r"[A-Za-z0-9._-]{40,}+"),
    secret_kind("pulumi-token", "pul-", r"[a-f0-9]{40}(?![A-Za-z0-9_])"),
    secret_kind("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", CHARACTER + "{32,}+"),
    secret_kind("rubygems-key", "rubygems_", r"[a-f0-9]{48}"),
    secret_kind("notion-token", "ntn_", r"[A-Za-z0-9]{40,}+"),
    secret_kind("netlify-token", "nfp_", r"[A-Za-z0-9]{36,}+"),
    secret_kind("age-key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{58}"),
    secret_kind("jwt", "eyJ", CHARACTER + r"{8,}+\.eyJ" + CHARACTER + r"{8,}+\." + CHARACTER + "{8,}+"),
    # Of models and those who run them.
    secret_kind("openai-key", "sess-", _A_CAPITAL + r"[A-Za-z0-9]{32,}"),
    secret_kind("google-token", "1//0", CHARACTER + "{35,}"),
    secret_kind("nvidia-key", "nvapi-", CHARACTER + "{40,}"),
    secret_kind("fireworks-key", "fw_", _A_CAPITAL + r"[A-Za-z0-9]{20,}"),
    secret_kind("cerebras-key", "csk-", _A_DIGIT + r"[a-z0-9]{40,}"),
    secret_kind("together-key", "tgp_v1_", CHARACTER + "{32,}"),
    secret_kind("voyage-key", "pa-", _A_CAPITAL + CHARACTER + "{40,}"),
    secret_kind("elevenlabs-key", "sk_", r"[a-f0-9]{48}(?![A-Za-z0-9])"),
    secret_kind("langfuse-key", "sk-lf-", _UUID),
    secret_kind("wandb-key", "wandb_v1_", r"[A-Za-z0-9_]{40,}"),
    secret_kind("jina-key", "jina_", r"[A-Za-z0-9]{32}" + CHARACTER + "{20,}"),
    secret_kind("firecrawl-key", "fc-", r"[a-f0-9]{32}(?![A-Za-z0-9_-])"),
    secret_kind("runpod-key", "rpa_", r"[A-Z0-9]{36,}"),
    secret_kind("e2b-key", "e2b_", r"[a-f0-9]{40}(?![A-Za-z0-9])"),
    secret_kind("cohere-key", "co_", _A_CAPITAL + r"[A-Za-z0-9]{40}(?![A-Za-z0-9_])"),
    secret_kind("braintrust-key", "bt-st-", r"[A-Za-z0-9]{32,}"),
    secret_kind("pinecone-key", "pcsk_", r"[A-Za-z0-9_]{40,}"),
    secret_kind("helicone-key", "sk-helicone-", r"[A-Za-z0-9-]{20,}"),
    secret_kind("bedrock-key", "ABSK", r"[A-Za-z0-9+/]{100,}=*", is_alone=True),
    secret_kind("google-key", "AQ.Ab", CHARACTER + "{40,}"),
    secret_kind("llamaindex-key", "llx-", r"[A-Za-z0-9]{40,}"),
    secret_kind("mem0-key", "m0-", r"[A-Za-z0-9]{40}(?![A-Za-z0-9_-])"),
    secret_kind("modal-token", "ak- as-", _A_CAPITAL + _A_DIGIT + r"[A-Za-z0-9]{22}" + ENDS),
    secret_kind("browserbase-key", "bb_live_", CHARACTER + "{24,}"),
    secret_kind("apify-token", "apify_api_", r"[A-Za-z0-9]{30,}"),
    secret_kind("cursor-key", "crsr_ key_", r"[a-f0-9]{64}(?![A-Za-z0-9])"),
    secret_kind("brave-key", "BSA", r"[A-Za-z0-9_-]{27,28}" + ENDS, is_alone=True, is_random=True),
    secret_kind("windsurf-key", "sk-ws-01-", CHARACTER + "{40,}"),
    secret_kind("sourcegraph-token", "sgamp_user_", r"[A-Za-z0-9_]{40,}"),
    secret_kind("portkey-key", "pk-live- pk-prod-", r"[A-Za-z0-9]{24,}"),
    # Of people who talk, and who send mail.
    secret_kind("slack-token", "xox", r"[abceoprs][-.][A-Za-z0-9.-]{10,}"),
    secret_kind("slack-token", "xwfp- xapp-", r"[A-Za-z0-9-]{10,}"),
    secret_kind("slack-token", "xoxd-", r"[A-Za-z0-9.%/+=_-]{10,}"),
    secret_kind(
        "discord-token",
        "MT Mj Mz ND NT Nj Nz OD OT",
        rf"[A-Za-z0-9]{{22,26}}\.{CHARACTER}{{6}}\.{CHARACTER}{{27,40}}{ENDS}",
        is_alone=True,
    ),
    secret_kind(
        "discord-webhook",
        "discord.com/api/webhooks/ discordapp.com/api/webhooks/",
        r"\d{17,20}/(?P<secret>" + CHARACTER + "{60,})",
        anywhere=True,
    ),
    secret_kind("teams-webhook", "webhook.office.com/webhookb2/", r"(?P<secret>[A-Za-z0-9@/-]{60,})", anywhere=True),
    secret_kind("twilio-key", "SK", r"[a-f0-9]{32}" + ENDS, is_alone=True),
    secret_kind(  # after the account that it belongs to: "AC…:token", ('AC…', 'token')
        "twilio-key",
        "AC",
        r"[a-f0-9]{32}[\"'\\]{0,4}[\s,:]{1,8}[\"'\\]{0,4}(?P<secret>[a-f0-9]{32})" + ENDS,
        is_alone=True,
    ),
    secret_kind("mailgun-key", "key- pubkey-", r"[a-f0-9]{32}" + ENDS, is_alone=True),
    secret_kind("mailchimp-key", "-us", r"\d{1,2}(?![A-Za-z0-9])", before=r"[a-f0-9]{32}", width=32, anywhere=True),
    secret_kind("brevo-key", "xkeysib- xsmtpsib-", r"[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    secret_kind("resend-key", "re_", _A_CAPITAL + r"[A-Za-z0-9]{6,12}_[A-Za-z0-9]{20,}"),
    secret_kind("postmark-token", "PMAK_", r"[A-Za-z0-9]{32,}"),
    secret_kind("intercom-token", "dG9rO", r"[A-Za-z0-9+/]{40,}=*", is_alone=True),
    secret_kind("hubspot-token", "pat-na1- pat-na2- pat-eu1- pat-ap1-", _UUID),
    secret_kind("calendly-token", "cal_live_ cal_test_", r"[A-Za-z0-9]{32}"),
    # Of money.
    secret_kind("square-token", "sq0csp- sq0atp- sq0idp-", CHARACTER + "{22,}"),
    secret_kind("square-token", "EAAA", CHARACTER + "{60}" + ENDS, is_alone=True, is_random=True),
    secret_kind("facebook-token", "EAA", r"[A-Z][A-Za-z0-9]{90,400}" + ENDS, is_alone=True, is_random=True),
    secret_kind("paypal-token", "access_token$production$", r"[a-z0-9]{16}\$[a-f0-9]{32}"),
    secret_kind("shippo-token", "shippo_live_ shippo_test_", r"[a-f0-9]{40}"),
    secret_kind("easypost-key", "EZAK EZTK", r"[A-Za-z0-9]{54}(?![A-Za-z0-9])"),
    secret_kind("duffel-token", "duffel_live_ duffel_test_", CHARACTER + "{43}"),
    secret_kind("flutterwave-key", "FLWSECK- FLWSECK_TEST-", r"[A-Za-z0-9-]{12,}"),
    secret_kind("razorpay-key", "rzp_live_ rzp_test_", r"[A-Za-z0-9]{14,}"),
    secret_kind("plaid-token", "access-production- access-sandbox- access-development-", _UUID),
    secret_kind("lob-key", "live_pub_ test_pub_", r"[a-f0-9]{31}"),
    # Of code hosting and build systems.
    secret_kind("gitlab-token", "GR1348941 glwt- glffct-", CHARACTER + "{20,}"),
    secret_kind(
        "bitbucket-token", "ATBB ATCTT3xFfGN0", r"[A-Za-z0-9=_-]{24,200}" + ENDS, is_alone=True, is_random=True
    ),
    secret_kind("circleci-token", "CCIPAT_ CCIPRJ_", r"[A-Za-z0-9]{22}_[a-f0-9]{40}"),
    secret_kind("artifactory-key", "AKCp", r"[A-Za-z0-9]{60,120}" + ENDS, is_alone=True),
    secret_kind("artifactory-key", "cmVmdGtuOj", r"[A-Za-z0-9]{50,}=*", is_alone=True),
    secret_kind("sourcegraph-token", "sgp_", r"(?:(?:[a-f0-9]{16}|local)_)?[a-f0-9]{40}"),
    secret_kind("sourcegraph-token", "slk_", r"[a-f0-9]{64}"),
    secret_kind("sonar-token", "squ_ sqp_ sqa_", r"[a-f0-9]{40}"),
    secret_kind("buildkite-token", "bkua_ bkct_", r"[a-f0-9]{40}"),
    secret_kind("figma-token", "figd_ figo_ figu_", CHARACTER + "{36,}"),
    secret_kind("clojars-token", "CLOJARS_", r"[a-z0-9]{60}"),
    secret_kind("nuget-key", "oy2", r"[a-z0-9]{43}" + ENDS, is_alone=True),
    secret_kind("crates-token", "cio", _A_CAPITAL + r"[A-Za-z0-9]{32}" + ENDS, is_alone=True, is_random=True),
    secret_kind("readme-key", "rdme_", r"[a-z0-9]{70}"),
    secret_kind("prefect-key", "pnu_ pnb_", r"[A-Za-z0-9]{36}"),
    secret_kind("onepassword-token", "ops_eyJ", r"[A-Za-z0-9+/_-]{100,}=*"),
    secret_kind(
        "onepassword-key",
        "A3-",
        r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}",
    ),
    secret_kind("bitwarden-token", "0.", _UUID + r"\.[A-Za-z0-9]{30}:[A-Za-z0-9+/]{22}==", is_alone=True),
    # Of clouds, data and networks.
    secret_kind(
        "azure-secret",
        "Q~",
        r"[A-Za-z0-9_~.-]{31,34}" + r"(?![A-Za-z0-9_~-])",
        before=r"[A-Za-z0-9_~.]{3}\d",
        width=4,
        anywhere=True,
    ),
    # Those of Azure that name their service, of 64, 32, 40 and 39 bytes, and those of one form for all services.
    _of_azure("ACDb APIM", 76, r"[A-Za-z0-9+/]{5}[AQgw]=="),
    _of_azure("ASt ABa AMC", 76, r"[A-Za-z0-9+/]{5}[AQgw]==", plus=True),
    _of_azure("AIoT AzCa AZEG", 33, r"[A-P][A-Za-z0-9+/]{5}="),
    _of_azure("ASb AEh ARm", 33, r"[A-P][A-Za-z0-9+/]{5}=", plus=True),
    _of_azure("AzSe", 42, r"[A-D][A-Za-z0-9+/]{5}"),
    _of_azure("ACR", 42, r"[A-D][A-Za-z0-9+/]{5}", plus=True),
    secret_kind(
        "azure-devops-token", "AZDO", r"[A-Za-z0-9]{4}" + ENDS, before=r"[A-Za-z0-9]{76}", width=76, anywhere=True
    ),
    _of_azure("JQQJ99", 52, r"[A-Za-z0-9]{26}"),
    secret_kind("azure-key", "AzFu", CHARACTER + r"{5}[AQgw]==", before=CHARACTER + "{44}", width=44, anywhere=True),
    secret_kind(
        "terraform-token", ".atlasv1.", CHARACTER + "{60,}", before=r"[A-Za-z0-9]{14}", width=14, anywhere=True
    ),
    secret_kind("heroku-key", "HRKU-AA", CHARACTER + "{50,}"),
    secret_kind("fly-token", "fm2_ fm1r_ fm1a_", r"[A-Za-z0-9+/=,_-]{80,}"),
    secret_kind("fly-token", "fo1_", CHARACTER + "{43}"),
    secret_kind("vercel-token", "vcp_ vci_ vca_ vcr_ vck_", r"[A-Za-z0-9]{24,}"),
    secret_kind("vercel-token", "vercel_blob_rw_", r"[A-Za-z0-9]{16}_[A-Za-z0-9]{30}"),
    secret_kind("render-key", "rnd_", _A_CAPITAL + r"[A-Za-z0-9]{28,32}(?![A-Za-z0-9_])"),
    secret_kind("neon-key", "napi_", _A_DIGIT + r"[a-z0-9]{48,}"),
    secret_kind("snyk-token", "snyk_uat. snyk_sat.", r"[A-Za-z0-9._-]{60,}"),
    secret_kind("cloudflare-token", "cfut_ cfat_ cfk_", r"[A-Za-z0-9]{40,}"),
    secret_kind("cloudflare-key", "v1.0-", r"[a-f0-9]{24}-[a-f0-9]{140,}"),
    secret_kind("tailscale-key", "tskey-", r"[a-z]{2,16}-[A-Za-z0-9]{6,}-[A-Za-z0-9]{16,}"),
    secret_kind("airtable-token", "pat", r"[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    secret_kind("dropbox-token", "sl.", r"(?:u\.)?" + CHARACTER + "{100,}"),
    secret_kind("mapbox-token", "sk.eyJ tk.eyJ", CHARACTER + r"{20,}\." + CHARACTER + "{20,}"),
    secret_kind("alibaba-key-id", "LTAI", r"[A-Za-z0-9]{16,24}" + ENDS, is_alone=True, is_random=True),
    secret_kind("supabase-key", "sb_secret_", CHARACTER + "{22,}"),
    secret_kind("grafana-token", "glc_eyJ", r"[A-Za-z0-9+/]{32,}=*"),
    secret_kind("dynatrace-token", "dt0c01. dt0s01. dt0s16.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    secret_kind("newrelic-key", "NRII- NRAL- NRRA-", r"[A-Za-z0-9-]{27,}"),
    secret_kind("posthog-key", "phx_", r"[A-Za-z0-9]{40,}"),
    secret_kind("infracost-key", "ico-", r"[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    secret_kind("harness-token", "pat. sat.", CHARACTER + r"{22}\.[a-f0-9]{24}\.[A-Za-z0-9]{20}"),
    secret_kind("octopus-key", "API-", r"[A-Z0-9]{26}" + ENDS, is_alone=True, is_random=True),
    secret_kind("openshift-token", "sha256~", CHARACTER + "{43}"),
    secret_kind("scalingo-token", "tk-us-", CHARACTER + "{48}"),
    secret_kind("databento-key", "db-", r"[A-Za-z0-9]{29}" + ENDS, is_alone=True, is_random=True),
    secret_kind("typeform-token", "tfp_", r"[A-Za-z0-9_.=-]{59,}"),
    secret_kind("linear-key", "lin_oauth_ lin_wh_", r"[A-Za-z0-9]{32,}"),
    secret_kind("notion-token", "secret_", _A_CAPITAL + r"[A-Za-z0-9]{43}(?![A-Za-z0-9_])"),
    secret_kind("doppler-token", "dp.scim. dp.audit.", r"[A-Za-z0-9._-]{40,}"),
    secret_kind("shopify-token", "shpua_ shptka_", r"[a-fA-F0-9]{32}"),
    secret_kind("contentful-token", "CFPAT-", CHARACTER + "{43}"),
    secret_kind("clickup-token", "pk_", r"\d{6,9}_[A-Z0-9]{32}(?![A-Za-z0-9_])"),
    secret_kind("adafruit-key", "aio_", r"[A-Za-z0-9]{28}(?![A-Za-z0-9_])"),
    secret_kind("frameio-token", "fio-u-", CHARACTER + "{64}"),
    secret_kind("polar-token", "polar_oat_ polar_pat_", r"[A-Za-z0-9_]{40,}"),
    secret_kind("inngest-key", "signkey-prod- signkey-test-", r"[a-f0-9]{64}"),
    secret_kind("adobe-secret", "p8e-", CHARACTER + "{32}"),
    secret_kind("yandex-key", "AQVN", CHARACTER + "{35,38}" + ENDS, is_alone=True, is_random=True),
    secret_kind(
        "maxmind-key", "_mmk", r"(?![A-Za-z0-9])", before=r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}", width=36, anywhere=True
    ),
)
