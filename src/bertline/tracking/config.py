"""Configuration of tracking."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

STUDIES_VARIABLE = "BERTLINE_STUDIES_URL"
"""Environment variable that overrides `studies_url`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackingConfig:
    """Settings of tracking. No stage depends on them."""

    enabled: bool
    """Whether to record runs in MLflow."""
    uri: str
    """Address of the tracking store: `sqlite:///runs/mlflow.db`, or a server. It must not contain
    credentials, because configurations are written to files that git tracks. MLflow reads
    credentials from the environment variables MLFLOW_TRACKING_USERNAME and
    MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN."""
    experiment_name: str
    """Name of the experiment in MLflow."""
    log_text: bool
    """Whether the user's own text (sample documents, mask predictions, report) may be sent to a
    remote server."""
    studies_url: str
    """Address of the database in which Optuna stores the studies of all tasks:
    `sqlite:///runs/studies.db`, or PostgreSQL (`postgresql://USER@HOST/DATABASE`), which several
    machines can share. It must not contain a password, because configurations are written to disk.
    PostgreSQL reads passwords from `~/.pgpass` or PGPASSWORD. The environment variable
    BERTLINE_STUDIES_URL overrides this address and may contain the password."""
    system_metrics: bool
    """Whether to record the load of processor, memory and GPU."""
    system_metrics_every_s: float
    """Seconds between two records of the load."""

    def __post_init__(self) -> None:
        if has_credentials(self.uri):
            # The address itself is not repeated: messages are logged.
            raise ValueError(
                "uri has a user name, a password or a token, and configurations are written to params.yaml, which git "
                "tracks. Leave it out here and set the environment variables that MLflow reads: "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN (for a database, give "
                "its password to the MLflow server and the server's address here)"
            )
        parts = urlsplit(self.studies_url)
        if parts.password is not None or any(map(_PASSWORD_OF_DATABASE.search, parse_qs(parts.query))):
            raise ValueError(
                "studies_url has a password, and configurations are written to disk. Leave it out here; put it into "
                "~/.pgpass or PGPASSWORD, or give the whole address in the environment variable BERTLINE_STUDIES_URL"
            )


_LOCAL_HOSTS = ("", "localhost", "127.0.0.1", "::1")
_QUERY_NAMES = (
    r"[\w.-]*(?:passw(?:or)?d|pwd|token(?!i[sz]|s(?![a-z]))|secret|key|credential|signature)[\w.-]*"
    r"|auth|sig|user(?:name)?"
)
_PASSWORD_OF_DATABASE = re.compile(r"(?i)passw(?:or)?d|pwd|secret|token")  # not `sslkey`, `passfile`: paths; nor `user`
_SECRET_QUERY = re.compile(rf"(?i)([?&;#](?:{_QUERY_NAMES})=)[^&;\s]+")

# A value behind a name. What a shell or a template is to find out ($NAME, `cat file`, <token>) is
# no secret, nor a word that stands for none.
_QUOTED = r"\"[^\"\s][^\"\n]*\"|'[^'\s][^'\n]*'"
_VALUE = rf"""(?!["']?(?:[$`<{{\[*%(-]|(?:none|null|true|false)\b))(?:{_QUOTED}|[^\s"'&;,)\]}}]+)"""
# Names of keys; `key` alone says nothing, as in `key=value`.
_KEY = r"(?:api|access|secret|private|signing|account|auth|encryption|master|license)[ _-]?key|client[ _-]?secret"
_SCHEME = r"(?:bearer|basic|token|digest)\s+"
_RANDOM = r"(?=[\w+/=.~-]*\d)(?=[\w+/=.~-]*[A-Za-z])[\w+/=.~-]{8,}"
_SECRETS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----)(?!\*)[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)",
        r"(?<=://)([^/@\s:]*:)[^/\s]*(?=@)",
        r"(?<=://)()[\w-]{20,}(?=@)",
        _SECRET_QUERY.pattern,
        # Known by their form: AWS, Google, JSON web tokens, Twilio, Telegram, and those with a
        # beginning of their own (Hugging Face, GitHub, GitLab, Databricks, npm, Docker,
        # DigitalOcean, Groq, NVIDIA, SendGrid, Stripe, Vault, Replicate, Grafana, Shopify, Linear,
        # New Relic, Tailscale, Perplexity, xAI, Atlassian, Figma, Sentry, OpenAI, PyPI, Slack).
        r"\b(A[KS]IA)[0-9A-Z]{16}\b",
        r"\b(AIza|ya29\.)[\w-]{20,}",
        r"\b(SK)[0-9a-f]{32}\b",
        r"\b(\d{8,10}:AA)[\w-]{33}\b",
        r"\b(eyJ)[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?",
        r"\b(hf_|api_org_|gh[pousr]_|github_pat_|gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent)-|dapi|npm_|dckr_pat_|dop_v1_|gsk_|nvapi-|SG\.|[sr]k_(?:live|test)_"
        r"|hvs\.|r8_|gls[ab]_|shp(?:at|ca|pa|ss)_|lin_api_|NRAK-|tskey-[a-z]+-|pplx-|xai-|ATATT|figd_|sntry[su]_)"
        r"[\w.-]{20,}",
        r"\b(sk-)(?!learn)(?=[\w-]*[A-Z0-9])[\w-]*[A-Za-z0-9_]{16}[\w-]*",
        r"\b(pypi-)(?=[\w-]*[A-Z0-9])[\w-]{20,}",
        r"\b(xox[a-z]-|xapp-)[\w-]{10,}",
        r"(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/)[\w/-]+",
        # Named: headers, options of a command, variables of a shell, settings.
        rf"(?i)\b((?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:{_SCHEME})?)(?!{_SCHEME}){_VALUE}",
        r"(?i)\b((?:set-)?cookie:\s*)[^\n\"']+",
        r"(?<!\S)((?:-u|--user)[\s=]\s*[\"']?[^\s:\"'/]+:)[^\s\"']+",
        # `-p` is a password for these programs alone; for mysql without a space, for Slurm and ssh
        # it is none.
        rf"\b((?:mysql|mariadb)[\w-]*\b[^\n|;&]*\s-p)(?=\S){_VALUE}",
        rf"\b((?:sshpass|mongo\w*|\w+ (?:registry )?login)\b[^\n|;&]*\s-p\s*){_VALUE}",
        rf"(?i)\b(bearer\s+)(?:{_RANDOM}|[\w+/=.~-]{{20,}})",
        rf"(?i)(?<!\S)(--?[\w-]*(?:passw(?:or)?d|passphrase|secret|token|{_KEY})(?:=|\s+))(?!\d+\b){_VALUE}",
        r"\b([A-Z0-9_]*(?:TOKEN(?![A-Z])|(?<![A-Z])PASS(?![A-Z])|PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_KEY|PRIVATE_KEY)"
        r"[A-Z0-9_]*=)"
        rf"(?!\d+\b){_VALUE}",
        rf"(?i)((?<![a-z])[\w-]{{0,40}}(?:passw(?:or)?d|[_-]pass|pwd|passphrase|{_KEY})[\"']?\s?=\s?){_VALUE}",
        rf"(?i)((?<![a-z])[\w-]{{0,40}}(?:passw(?:or)?d|[_-]pass|pwd|passphrase|{_KEY})[\"']?\s*:\s*)(?={_VALUE})(?:{_QUOTED}|[^\s\"',]{{6,}})",
        rf"(?i)((?<![a-z])[\w-]{{0,40}}(?:token|secret|credentials?)[\"']?\s*[:=]\s*[\"']?)(?:{_RANDOM}|[\w+/=.~-]{{24,}})",
        r"(?i)((?<![a-z])(?:[\w-]{0,40}[_-])?key[\"']?\s*[:=]\s*[\"']?)(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{20,}",
        r"(?i)\b((?:token|secret|password|api key|login)\s+(?:is\s+)?)(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{20,}",
    )
)


def masked(text: str) -> str:
    """Mask passwords, tokens and keys in a text: in addresses, behind names that say so, and by
    their form.

    >>> masked("cannot reach https://ada:s3cret@mlflow.example.org/api?token=abc")
    'cannot reach https://ada:***@mlflow.example.org/api?token=***'
    >>> masked("export MLFLOW_TRACKING_TOKEN=abc HF_TOKEN=$(cat file)")
    'export MLFLOW_TRACKING_TOKEN=*** HF_TOKEN=$(cat file)'
    >>> masked("curl -H 'Authorization: Bearer abc' --max-tokens=512")
    "curl -H 'Authorization: Bearer ***' --max-tokens=512"
    """
    for pattern in _SECRETS:
        text = pattern.sub(r"\1***", text)
    return text


def first_line(error: object) -> str:
    """Return what an error says first, masked; the name of its type if it says nothing."""
    # The driver's own error of a database has neither the statement nor the name of a class.
    error = getattr(error, "orig", None) or getattr(getattr(error, "__cause__", None), "orig", None) or error
    return masked(str(error)).strip().partition("\n")[0].partition(" (Caused by")[0][:300] or type(error).__name__


def has_credentials(uri: str) -> bool:
    """Return whether an address has a user name or password before its host, or a secret in its
    query.

    The user name of a database alone does not count: it is not secret, and the driver reads it only
    from the address.

    >>> has_credentials("https://ada:s3cret@mlflow.example.org"), has_credentials("https://h/?api_key=abc")
    (True, True)
    >>> has_credentials("https://mlflow.example.org"), has_credentials("postgresql://ada@db/mlflow")
    (False, False)
    """
    parts = urlsplit(uri)
    name_alone = parts.username if parts.scheme.startswith("http") else None
    return bool(parts.password or name_alone or _SECRET_QUERY.search(uri))


def is_local(uri: str) -> bool:
    """Return whether a store is on this machine.

    >>> [is_local(uri) for uri in ("sqlite:///runs/mlflow.db", "/tmp/mlruns", "http://127.0.0.1:5000", "http://[::1]")]
    [True, True, True, True]
    >>> is_local("http://mlflow:5000"), is_local("http://10.0.0.3:5000"), is_local("postgresql://db/mlflow")
    (False, False, False)
    """
    return uri.startswith("sqlite:") or (urlsplit(uri).hostname or "") in _LOCAL_HOSTS


def database_file(uri: str) -> Path | None:
    """Return the file of an SQLite address; None for other addresses.

    >>> database_file("sqlite:///runs/mlflow.db").as_posix()
    'runs/mlflow.db'
    >>> database_file("http://127.0.0.1:5000") is None
    True
    """
    return Path(uri.removeprefix("sqlite:///").split("?")[0]) if uri.startswith("sqlite:///") else None
