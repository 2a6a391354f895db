"""Log signatures of failures outside the cluster.

Sources: model hubs, object stores, experiment trackers, name servers.
"""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

_X = LineKind.NETWORK_EXTERNAL
_add(
    "retries",
    _X,
    "retrying in|retry loop|thrown while requesting|calling w&b api",
    r"(?:network error|\b(?:429|50[0234])\b|too many requests|timed? ?out|connection).{0,160}(?:retrying in \d"
    r"|retry loop)"
    r"|thrown while requesting|error while calling w&b api",
    LineRole.WARNING,
)
_add(
    "urllib3",
    _X,
    "httpsconnectionpool|httpconnectionpool|max retries exceeded|newconnectionerror",
    r"https?connectionpool\(|max retries exceeded with url|newconnectionerror",
    soft=True,
)
_add(
    "resolver",
    _X,
    "name resolution|resolve host|name or service|getaddrinfo|nodename nor|failed to resolve",
    r"temporary failure in name resolution|could not resolve host|couldn't resolve host|failed to resolve"
    r"|name or service not known(?!.{0,40}(?:c10d|master|29500))|nodename nor servname|getaddrinfo.{0,20}(?:failed"
    r"|enotfound|eai_again)",
    soft=True,
)
_add(
    "Hugging Face",
    _X,
    "huggingface|hf.co|hfhubhttperror|localentrynotfound|offline mode",
    r"(?:connect(?:ion)? to|reach|timed? ?out|load this file|resolv|server error|too many requests|5\d\d |429"
    r"|unavailable).{0,120}(?:huggingface\.co|hf\.co)|(?:huggingface\.co|hf\.co).{0,200}(?:connection error"
    r"|timed? ?out|refused|unreachable|unavailable|5\d\d server|429 client|too many requests|reset)"
    r"|hfhubhttperror: ?(?:5\d\d|429)|localentrynotfounderror|cannot reach .{0,160}offline mode is enabled",
    whole=True,
    soft=True,
)
_add(
    "HTTP",
    _X,
    "50|server error|too many requests|service unavailable|gateway|httperror|http status|client error",
    r"\b(?:5\d\d server error|50[234][ :]{1,2}(?:bad gateway|service|gateway)|429[ :]{1,2}(?:client error"
    r"|too many requests))|http ?error:? ?(?:429|50[0234])|too many requests for url|http status (?:code )?(?:429"
    r"|50[0234])",
    soft=True,
)
_add(
    "requests",
    _X,
    "requests.exceptions|httpx.|urllib|aiohttp.|chunkedencoding|incompleteread|connecttimeout"
    "|readtimeout|http.client|protocolerror|remotedisconnected|httpcore.connect",
    r"requests\.exceptions\.(?:\w*connection|\w*timeout|ssl|proxy|chunked|retry)\w*|(?:httpx|httpcore)\.(?:connect"
    r"|read|remote|pool|network|proxy)\w*|urllib\.error\.urlerror|urllib3\.exceptions\.\w+"
    r"|aiohttp\.client_exceptions\.\w*(?:connect|timeout|disconnect|oserror|ssl|payload)\w*|chunkedencodingerror"
    r"|incompleteread\(|\b(?:connecttimeout|readtimeout)(?:error)?\b|remotedisconnected|protocolerror: ?\(",
)
_add(
    "wandb",
    _X,
    "wandb|mlflow|clearml|tensorboard.dev|comet",
    r"(?:wandb|mlflow|clearml|comet).{0,80}(?:network error|commerror|connection ?error|timed? ?out|timeout"
    r"|failed to connect|\b50[0234]\b|unreachable|unavailable|retry loop|could not connect|error communicating)",
)
_add(
    "AWS",
    _X,
    "botocore|clienterror|amazonaws|slowdown|requesttimeout|s3|) when calling|connect"
    "|please reduce your request rate|readtimeouterror:|sslerror:",
    r"(?:endpointconnection|connecttimeout|readtimeout|connectionclosed|httpclient|proxyconnection"
    r"|ssl)error: .{0,40}|could not connect to the endpoint url|\((?:slowdown|requesttimeout|serviceunavailable"
    r"|internalerror|throttling\w*|requestlimitexceeded|503|500)\) when calling|please reduce your request rate"
    r"|error downloading.{0,60}\bs3\b|\bs3\b.{0,60}(?:timed? ?out|connection reset|slowdown|unreachable)",
    whole=True,
)
_add(
    "git",
    _X,
    "unable to access|ssl:|ssl_error|certificate verify|sslerror|rpc failed|unable to reach|network is unreachable",
    r"unable to access 'https?://|certificate[ _]verify[ _]failed|ssl_error_syscall|sslerror\(|\bsslerror:"
    r"|ssl: [a-z_]{6,}|rpc failed; (?:http|curl)|network is unreachable",
)
_add("Hugging Face", _X, "working hard to fix this", r"internal error - we're working hard to fix this", whole=True)
_add("curl", _X, "curl", r"\bcurl: \((?:5|6|7|18|28|35|52|56|92)\)")

SIGNATURES = tuple(_ALL.rows)
