"""Log signatures of programs: arguments, configuration, and files that are missing."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

_U = LineKind.USER_ERROR_CONFIG
_add(
    "command lines",
    _U,
    "unexpected extra argument|no such option|no such command|missing option|missing argument|missing parameter"
    "|flags parsing error|could not consume arg|__main__|could not find '|merging override|parsing override"
    "|omegaconf.errors|hydra.errors|with schema|' not in '",
    r"^\s{0,8}error: (?:got unexpected extra argument|no such (?:option|command)|missing (?:option|argument"
    r"|parameter))|\bflags parsing error: |\bcould not consume arg: |no module named \S{1,160}\.__main__"
    r"|^\s{0,8}in '[^']{1,200}': could not find '|^\s{0,8}error (?:merging|parsing) override|\b(?:omegaconf"
    r"|hydra)\.errors\.\w{1,60}: |^\s{0,8}error merging '[^']{1,200}' with schema"
    r"|^\s{0,8}key '[^']{1,120}' not in '\w{1,80}'\s{0,4}$",
    stated=True,
)
_add(
    "pydantic",
    _U,
    "validation error|[type=",
    r"^\s{0,8}\d+ validation errors? for \w|\[type=\w{2,60}, input_value=",
    LineRole.WARNING,
    stated=True,
)
_add(
    "AWS",
    _U,
    "when calling",
    r"\((?:accessdenied\w*|unauthorizedoperation|invalidaccesskeyid|expiredtoken\w*|signaturedoesnotmatch|nosuchbucket"
    r"|nosuchkey|validationexception|invalidparameter\w*|403|404)\) when calling",
)
_add(
    "vLLM",
    _U,
    "max seq len",
    r"max seq len \(\d+\).{0,40}(?:is larger than|kv cache is needed)",
    whole=True,
)
_add(
    "launchers",
    _U,
    "could not override|is not in struct|unrecognized arguments|can't open file|invalid generic resource|nic_policy"
    "|invalid value for environment|invalid account|invalid partition|invalid qos|nccl warn"
    "|time limit is invalid",
    r"could not override|is not in struct|\berror: unrecognized arguments|\bpython\S{0,8}: can't open file"
    r"|invalid generic resource|unable to use a nic_policy|invalid value for environment variable"
    r"|requested time limit is invalid|invalid (?:account|partition|qos).{0,60}(?:specified|specification)"
    r"|nccl warn.{0,60}(?:invalid config|duplicate gpu)",
    stated=True,
    whole=True,
)
_add(
    "Hydra",
    _U,
    "omegaconf|hydra|config|invalid hyperparameter|missingmandatoryvalue|could not override"
    "|is not in struct|invalid setting|invalid option",
    r"\bomegaconf\.|\bhydra\.errors|could not override|is not in struct|configattributeerror|missingmandatoryvalue"
    r"|(?:invalid|missing|unknown|unsupported|bad) (?:config(?:uration)?|option|hyperparameter"
    r"|setting)s?\b(?=.{0,4}[:'\"` (]|$)|config\w*error\b|missingconfigexception|(?:config"
    r"|configuration) (?:file )?.{0,120}(?:not found|does not exist|is invalid|missing)|error (?:parsing|reading"
    r"|in) .{0,30}config",
)
_add(
    "argparse",
    _U,
    "error: ",
    r"\berror: (?:unrecognized arguments?|the following arguments are required|argument |ambiguous option"
    r"|no such option|invalid choice|unknown option|missing option|invalid value)",
)
_add(
    "pydantic",
    _U,
    "validation error|validationerror|jsondecodeerror|scannererror|parsererror|tomldecode|yaml."
    "|parsing|constructorerror|composererror",
    r"\bvalidation errors? for\b|\bvalidationerror\b|jsondecodeerror|yaml\.\w+\.\w+error|(?:scanner|composer"
    r"|constructor)error|tomldecodeerror|while parsing a (?:block|flow)",
)
_add(
    "transformers",
    _U,
    "invalid|valid model identifier|repositorynotfound|gated|401 client|403 client|unauthorized"
    "|repository not found|entrynotfound|access to model|not a local folder",
    r"not a (?:local folder|valid model identifier)|repository ?not ?found|gatedrepoerror|gated repo"
    r"|40[134] client error|access to model .{0,80}restricted|(?:remote)?entrynotfounderror"
    r"|invalid (?:user )?token|unauthorized",
    whole=True,
)
_add(
    "CUDA",
    _U,
    "duplicate gpu|ncclinvalid|invalid usage|invalid argument (run|no socket interface found",
    r"duplicate gpu detected|nccl ?invalid ?(?:usage|argument)|invalid usage|no socket interface found",
    whole=True,
)
_add(
    "shell",
    _U,
    "errno 2]|errno 13]|errno 17]|errno 20]|errno 21]|filenotfound|notadirectoryerror|isadirectoryerror"
    "|permissionerror|(os error 13)|(os error 2)",
    r"\[errno (?:2|13|20|21|17)\]|filenotfounderror|notadirectoryerror|isadirectoryerror|permissionerror"
    r"|\(os error (?:2|13)\)",
)
_add(
    "shell",
    _U,
    ": line |: not found",
    r": line \d+: (?:unexpected eof while|syntax error )|^\S{1,120}sh: \d+: \S{1,120}: not found\s{0,4}$",
    LineRole.WARNING,
    soft=True,
    stated=True,
)
_add(
    "AWS",
    _U,
    "when calling",
    r"\((?:expiredtoken\w{0,12}|invalidaccesskeyid|invalidclienttokenid|unrecognizedclient\w{0,12}"
    r"|signaturedoesnotmatch)\) when calling",
    LineRole.WARNING,
    stated=True,
)
_add(
    "shell",
    _U,
    "command not found|no such file|permission denied|is a directory|not a directory|enoent",
    r"^\S{1,200}: .{0,240}(?:command not found|no such file or directory|permission denied|is a directory"
    r"|not a directory)\s*$|\benoent\b",
    LineRole.WARNING,
    soft=True,
    stated=True,
)
_add(
    "training loops",
    _U,
    "divisible|must be|should be|expected|got an unexpected|not supported|cannot be|mat1|same device"
    "|required positional|do not match|does not match|not equal|check batch related parameters"
    "|the size of tensor a (",
    r"(?:is not|not|must be|should be|isn't|be) (?:evenly )?divisible|check batch related parameters|(?:mat1 and mat2"
    r"|shapes) (?:shapes )?(?:cannot be|do not match|don't match)|expected all tensors to be on the same device"
    r"|got an unexpected keyword argument|missing \d+ required positional|the size of tensor a \(\d+\) must match"
    r"|expected to have finished reduction",
    whole=True,
)

SIGNATURES = tuple(_ALL.rows)
