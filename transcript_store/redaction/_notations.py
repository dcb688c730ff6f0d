"""Secrets that only what stands around them gives away: the name of a header, of a variable or of an option, or a URL."""

from __future__ import annotations

from transcript_store.redaction._kinds import DONE, ENDS, QUOTE, SET, Kind, kind

_PORT = r"\d{2,5}|[$#]{0,2}\{{1,2}[\w.]{0,64}\}{1,2}|\$\w{1,64}|%[ds]|(?i:port)|" + DONE
"""What else stands behind ``host:``."""
_NO_WEB = "".join(rf"(?<!{scheme}://)" for scheme in ("http", "https", "ws", "wss", "file", "ssh", "git"))
"""Behind these schemes ``/`` begins a path, always."""


def _in_url(ends: str) -> str:
    """``user:password@host`` behind ``://``. The password goes up to the last ``@`` before the path. Before its first ``@`` it may hold
    characters that ought to be escaped, except those of ``ends``. A port in front of a path is no password. Nor is what stands before
    the ``@`` of an image's digest.
    """
    never = r"\s\"'\\<>"
    return (
        rf"[^:/@\[{never}]{{0,256}}+:(?!/|(?:{_PORT})[/?#])"
        rf"(?P<secret>[^{ends}@{never}]{{1,256}}+[^/?#{never}]{{0,256}})@(?!sha\d{{3}}:)[A-Za-z0-9_\[]"
    )


_VALUE = r"(?P<secret>[A-Za-z0-9_~+/=-]{16,512})(?!\.?[A-Za-z0-9_~+/=(\[-])"
"""Not a name of a program: ``base64.b64encode(key)``."""
_WORD_OF_A_SHELL = r"[\"']?(?P<secret>[^\s\"'$<>{}()`\\;&|]{6,128})"
_PAIR = r"(?P<name>[^\s=;,\"']{1,64})=(?P<secret>[A-Za-z0-9%+/=_.~:-]{16,4096})"
_MIXED = (
    r"(?P<secret>(?=[^\s\"'<>&;]{0,64}[a-z])(?=[^\s\"'<>&;]{0,64}[A-Z])(?=[^\s\"'<>&;\d]{0,64}\d[^\s\"'<>&;\d]{0,64}\d)"
    r"[A-Za-z0-9_~+/=!@#%^*-]{12,512})(?!\.?[A-Za-z0-9_~+/=(\[-])"
)
"""Small letters, capitals and two digits: no hash in hex, no id, and hardly a name of a program."""
_BEHIND_A_NAME = (
    rf"(?:{SET}|\s{{0,2}}[:=]\s?(?:&quot;|&#3[49];)|(?:&quot;|&#3[49];)\s{{0,2}}[:=]\s?(?:&quot;|&#3[49];)"
    r"|:\s?[|>][+-]?(?:\s|\\n){1,16}|(?:[\"']|&quot;)\s{1,4}value=(?:[\"']|&quot;)|>)"
)
"""``SET``, the same with quotes as HTML has them, a block of YAML, an attribute or an element of XML."""
_OF_A_CONNECTION = (
    r"(?i:\b(?:host|server|data source|dsn|driver|uid|user id|user|username|dbname|database|initial catalog)\s?=|jdbc:)"
)
_NEW_LINE = r"(?:\s|\\{1,4}[nrt]){1,8}"

NOTATIONS: tuple[Kind, ...] = (
    kind(
        "aws-secret",
        "ecret_access_key ecretAccessKey ECRET_ACCESS_KEY ession_token essionToken ESSION_TOKEN aws_secret_key AWS_SECRET_KEY awsSecretKey"
        " ecret+Access+Key ecret+access+key",
        rf"(?:{SET}|\s{{1,4}}{QUOTE}{{0,4}})(?P<secret>[A-Za-z0-9/+=]{{40,}}+)",  # aws configure set NAME VALUE
        anywhere=True,
    ),
    kind("slack-webhook", "hooks.slack.com/", r"(?:services|workflows)/(?P<secret>[A-Za-z0-9/_-]{20,}+)"),
    kind("azure-key", "AccountKey= SharedAccessKey=", r"(?P<secret>[A-Za-z0-9+/]{40,}+={0,2})", anywhere=True),
    kind(
        "azure-key",
        "AZURE_STORAGE_KEY AZURE_STORAGE_ACCOUNT_KEY --account-key -sas-key",
        rf"(?:{SET}|\s{{1,4}}{QUOTE}{{0,4}})(?P<secret>[A-Za-z0-9+/]{{40,}}+={{0,2}})",
        anywhere=True,
    ),
    kind(  # of the storage's two keys, as `az storage account keys list` prints them
        "azure-key",
        "value FULL",
        rf"(?:{SET}|\s{{1,32}})(?P<secret>[A-Za-z0-9+/]{{86}}==)",
        near=r"\bkey[12]\b",
        anywhere=True,
    ),
    kind(
        "twilio-key",
        "TWILIO_AUTH_TOKEN TWILIO_API_SECRET TWILIO_API_KEY_SECRET",
        SET + r"(?P<secret>[A-Za-z0-9]{32})" + ENDS,
        anywhere=True,
        is_random=True,
    ),
    kind(
        "twilio-key",
        "auth_token authToken",
        SET + r"(?P<secret>[a-f0-9]{32})" + ENDS,
        near=r"(?i:twilio|\bAC[a-f0-9]{32}\b)",
        anywhere=True,
        is_random=True,
    ),
    kind(
        "authorization",
        "uthorization UTHORIZATION",
        SET + r"(?i:bearer|basic|token)(?:\s|%20|\+){1,4}(?P<secret>[A-Za-z0-9._~+/-]{16,}+=*+)",
        anywhere=True,
    ),
    kind(  # without a scheme, or with one that means nothing elsewhere
        "authorization",
        "uthorization UTHORIZATION",
        SET + r"(?:(?i:bot|api-?key|key|digest|sso-key|genie-?key)(?:\s|%20){1,4})?(?!AWS4-)" + _VALUE,
        anywhere=True,
        is_random=True,
    ),
    kind(
        "api-key",
        "-Api-Key -api-key -API-Key -API-KEY -ApiKey -apikey -Auth-Token -auth-token -AUTH-TOKEN -Access-Token -access-token"
        " Private-Token PRIVATE-TOKEN private-token -Vault-Token -vault-token -Auth-Key -auth-key -Subscription-Key",
        SET + _VALUE,
        anywhere=True,
        is_random=True,
    ),
    kind("cookie", "Cookie cookie COOKIE", SET + r"(?P<secret>[^\r\n\"'\\]{16,8192})", anywhere=True, each=_PAIR),
    kind(
        "password",
        "PGPASSWORD MYSQL_PWD REDISCLI_AUTH SSHPASS _PASSWORD _PASSWD",
        r"=" + _WORD_OF_A_SHELL,
        anywhere=True,
        is_random=True,
    ),
    kind(
        "password",
        "+-u --user+ --user= --proxy-user+",
        r"[ \"']{0,2}[^\s:\"']{0,128}:" + _WORD_OF_A_SHELL,
        near=r"\b(?:curl|http)\b",
        anywhere=True,
        is_random=True,
    ),
    kind(
        "password",
        "+-p",
        _WORD_OF_A_SHELL.replace("[\"']?", "[\"']?(?!-)"),
        near=r"\b(?:mysql\w{0,16}|mariadb\w{0,16}|sshpass)\b",
        anywhere=True,
        is_random=True,
    ),
    kind(
        "password",
        "password",
        _NEW_LINE + _WORD_OF_A_SHELL,
        near=rf"\b(?:machine{_NEW_LINE}\S{{1,128}}|default){_NEW_LINE}login{_NEW_LINE}\S{{1,128}}{_NEW_LINE}$",
        anywhere=True,
    ),
    kind(  # sshpass -p VALUE, redis-cli -a VALUE
        "password",
        "+-p+ +-a+ +--pass+",
        _WORD_OF_A_SHELL.replace("[\"']?", "[\"']?(?!-)"),
        near=r"\b(?:sshpass|redis-cli)\b[^|;&\n]{0,128}$",
        anywhere=True,
        is_random=True,
    ),
    kind("password", "pass:", _WORD_OF_A_SHELL, near=r"\bopenssl\b", anywhere=True, is_random=True),
    kind(
        "password",
        "assword= ASSWORD= Pwd= PWD= pwd=",
        r"\{?" + r"(?P<secret>[^\s;&\"'{}()$<>]{6,128})",
        near=_OF_A_CONNECTION,
        anywhere=True,
        is_random=True,
    ),
    kind(
        "password", "jdbc:oracle:thin:", r"[^/@:\s]{1,64}/(?P<secret>[^@\s\"']{4,128})@", anywhere=True, is_random=True
    ),
    kind(
        "password",
        "PASSWORD password BY",
        r"\s{1,4}(?:E)?'(?P<secret>[^'\s]{6,128})'",
        near=r"(?i:\b(?:create|alter)\s{1,4}(?:user|role|login)\b)",
        anywhere=True,
        is_random=True,
    ),
    kind(
        "password",
        "assword ASSWORD asswd ASSWD assphrase ASSPHRASE DB_PASS",
        _BEHIND_A_NAME + _MIXED,
        anywhere=True,
        is_random=True,
    ),
    kind(
        "api-key",
        "api_key api-key apikey apiKey ApiKey API_KEY client_secret clientSecret CLIENT_SECRET secret_key secretKey SECRET_KEY SecretKey"
        " access_token accessToken ACCESS_TOKEN refresh_token refreshToken REFRESH_TOKEN auth_token AUTH_TOKEN api_token apiToken"
        " API_TOKEN NPM_TOKEN webhook_secret WEBHOOK_SECRET app_secret APP_SECRET",
        _BEHIND_A_NAME + _MIXED,
        near=r"(?<!AWS_)(?<!aws_)(?<!aws)$",
        anywhere=True,
        is_random=True,
    ),
    kind("registry-auth", "auth", SET + r"(?P<secret>[A-Za-z0-9+/]{16,}={0,2})", anywhere=True, is_basic=True),
    kind("registry-auth", "_authToken :_auth :_password", r"\s?=\s?" + _WORD_OF_A_SHELL, anywhere=True),
    kind(
        "wireguard-key", "PrivateKey PresharedKey PreSharedKey", SET + r"(?P<secret>[A-Za-z0-9+/]{43}=)", anywhere=True
    ),
    kind("kubernetes-key", "client-key-data", SET + r"(?P<secret>[A-Za-z0-9+/=]{40,})", anywhere=True),
    kind(  # "-----BEGIN … PRIVATE KEY-----" in base64
        "private-key",
        "LS0tLS1CRUdJTiBQUklWQVRF LS0tLS1CRUdJTiBSU0EgUFJJVkFUR LS0tLS1CRUdJTiBFQyBQUklWQVRF LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVE"
        " LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFUR LS0tLS1CRUdJTiBEU0EgUFJJVkFUR",
        r"[A-Za-z0-9+/=]{40,}",
    ),
    kind(
        "putty-key",
        "Private-Lines:",
        rf"[ \t]?\d{{1,3}}(?P<secret>(?:{_NEW_LINE}[A-Za-z0-9+/=]{{1,80}}(?![A-Za-z0-9+/=:-])){{1,200}})",
    ),
    kind("signed-url", "?sig= &sig= ;sig=", r"(?P<secret>[A-Za-z0-9%+/]{40,}=?)", anywhere=True),
    kind("signed-url", "Amz-Signature= Goog-Signature=", r"(?P<secret>[a-fA-F0-9]{40,})", anywhere=True),
    kind("signed-url", "Amz-Security-Token=", r"(?P<secret>[A-Za-z0-9%+/=_-]{40,})", anywhere=True),
    kind("password", "://", _in_url("/"), anywhere=True),
    kind("password", "://", _NO_WEB + _in_url(""), anywhere=True),  # drivers of databases take a "/" in a password
    kind(
        "password",
        "%3A%2F%2F %3a%2f%2f",
        r"(?:[A-Za-z0-9._~-]|%(?!3A|3a|40|2F|2f)){0,256}%3[Aa](?P<secret>(?:[A-Za-z0-9._~!*-]|%(?!40|2F|2f)){1,256})%40",
        anywhere=True,
    ),
)
