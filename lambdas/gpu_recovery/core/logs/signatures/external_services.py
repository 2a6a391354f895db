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
    r"|retry loop)|thrown while requesting|error while calling w&b api",
    LineRole.WARNING,
)
_add("urllib3", _X, "retrying (retry(total=0", r"\bretrying \(retry\(total=0\b", LineRole.WARNING, whole=True)
_add(
    "Hugging Face",
    _X,
    "consistency check failed|cas service error|reqwest error|reqwest::error|couldn't reach|couldn't connect to 'http",
    r"\bconsistency check failed: file should be of size|\bcas service error|\breqwest(?: |::)error\b"
    r"|\bcouldn't reach '?\S{1,200} on the hub|\bconnectionerror: couldn't reach |\bcouldn't connect to 'https?://",
)
_add(
    "SDKs of web services",
    _X,
    "openai.|anthropic.|google.api_core|azure.core|redis.exceptions|operationalerror|pymongo.|elasticsearch|kubernetes."
    "|minio.|opensearch|cohere.|litellm.|tenacity|mlflow",
    r"(?:openai|anthropic|cohere|litellm)\.(?:\w{1,24}\.){0,3}(?:api)?(?:connection|timeout|ratelimit|internalserver"
    r"|serviceunavailable|apistatus|overloaded)\w*|google\.api_core\.exceptions\.(?:serviceunavailable"
    r"|deadlineexceeded|toomanyrequests|internalservererror|retryerror|gatewaytimeout|badgateway|resourceexhausted)"
    r"|azure\.core\.exceptions\.service(?:request|response)\w*|redis\.exceptions\.(?:connection|timeout"
    r"|busyloading)\w*|operationalerror: .{0,200}(?:connect|timed? ?out|server closed)"
    r"|pymongo\.errors\.(?:serverselectiontimeout|autoreconnect|networktimeout|connectionfailure)\w*"
    r"|elasticsearch\S{0,30}\.connection(?:error|timeout)",
)
_add(
    "AWS",
    _X,
    "when calling|metadataretrievalerror|aws_|responsestreamingerror|credentialretrievalerror",
    r"\((?:toomanyrequests\w*|provisionedthroughputexceeded\w*|bandwidthlimitexceeded|requestthrottled\w*"
    r"|priorrequestnotcomplete|requestthrottling\w*|50[0234])\) when calling|\bmetadataretrievalerror\b"
    r"|\bresponsestreamingerror\b|\bcredentialretrievalerror: .{0,200}(?:timeout|timed out|connect)"
    r"|\baws_(?:io|error|http)_\w{0,40}(?:timeout|dns_|socket_|connection_|slow_down|throttl)",
)
_add(
    "clients",
    _X,
    "socket.timeout|operation timed out|wget: unable|temporary failure resolving|ssh: |... failed: |condahttperror"
    "|could not connect to|contenttooshorterror|fstimeouterror|clientresponseerror|httperror: |dns resolution failed"
    "|gaierror|address associated with hostname|failed to fetch",
    r"\bsocket\.timeout: |\bthe (?:read|write|handshake) operation timed out|\bwget: unable to resolve"
    r"|\btemporary failure resolving\b|\bssh: connect to host \S{1,120} port \d+: (?!connection refused)"
    r"|\)\|[\d.:a-f]{3,40}\|:\d+\.\.\. failed: |\bcondahttperror\b|could not connect to \S{1,120}:(?:80|443)\b"
    r"|\bcontenttooshorterror\b|\bfstimeouterror\b|\bclientresponseerror: (?:429|5\d\d)|\bhttperror: .{0,60}\b(?:429"
    r"|50[0234])\b|\bdns resolution failed\b|\bsocket\.gaierror\b|\bno address associated with hostname"
    r"|^\s{0,4}e: failed to fetch https?://",
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
    "initialization has timed out|communicate with backend",
    r"\brun initialization has timed out|\bcouldn't communicate with backend after",
)
_add(
    "wandb",
    _X,
    "wandb|mlflow|clearml|tensorboard.dev|comet",
    r"(?:wandb|mlflow|clearml|comet).{0,80}(?:network error|commerror|connection ?error|timed? ?out|timeout"
    r"|failed to connect|\b50[0234]\b|unreachable|(?<!is )unavailable|retry loop|could not connect|error"
    r" communicating)",
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
_add(
    "HTTP",
    _X,
    "http 429|http 50|<response [|status code|returned error|could not resolve '",
    r"\bhttp (?:429|50[0234])\b|<response \[(?:429|50[0234])\]>|\bstatus code:? (?:429|50[0234])\b"
    r"|returned error:? (?:code:? )?(?:429|50[0234])\b|\bcould not resolve '\S{1,120}'",
    soft=True,
)
_add(
    "clients",
    _X,
    "unable to connect to the server|upload failed: |download failed: |contact ldap|instance metadata|s3exception: "
    "|connection to comet",
    r"\bunable to connect to the server: |\b(?:up|down)load failed: .{0,400}\b(?:connection|connect|timed? ?out"
    r"|timeout)|can't contact ldap server|\binstance metadata.{0,80}(?:deadline|timed? ?out|refused|unreachable)"
    r"|\bs3exception: (?:client|service) error|failed to establish connection to comet",
)
_add(
    "SDKs of web services",
    _X,
    "connection|timeout|unavailable|ratelimit|throttl|network",
    r"^\s{0,8}(?!torch|pip\b|ray\b|asyncio|concurrent|multiprocess|subprocess|queue|zmq|vllm|sglang|fastapi|starlette"
    r"|werkzeug|pydantic|builtins|socket|deepspeed|megatron|nccl|mpi4py|grpc|verl|rpyc|py4j|jax|horovod|lightning"
    r"|alluxio)[a-z]\w{1,40}\.(?:\w{1,40}\.){0,5}\w{0,40}(?:timeout|unavailable|(?:connection|timeout|unavailable"
    r"|ratelimit|throttl|network)\w{0,40}(?:error|exception|exceeded)):(?: |$)",
)
_add("Hugging Face", _X, "working hard to fix this", r"internal error - we're working hard to fix this", whole=True)
_add("curl", _X, "curl", r"\bcurl: \((?:5|6|7|18|28|35|52|56|92)\)")

SIGNATURES = tuple(_ALL.rows)
