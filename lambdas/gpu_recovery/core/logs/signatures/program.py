"""Log signatures of programs: NaN and configuration."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_NAN = r"(?:[-+]?nan|[-+]?inf(?:inity)?)"

_N = LineKind.NUMERICAL_NAN
_add(
    "training loops",
    _N,
    "nan|inf",
    rf"\b(?!max_|min_|best_|clip_)(?:\w{{0,20}}_)?(?:loss|grad(?:ient)?s?(?:[_ ]?norm)?|gnorm|grad_norm|perplexity"
    rf"|ppl|activations?"
    rf"|logits)(?:[_ ]\w{{1,12}})?[\"']?\s?(?:[:=|]|is|are|was|became|becomes|went|to|of|contains?"
    rf"|-?>)\s{{0,4}}[\[(]?(?:tensor\(\[?|array\(\[?)?[\"']?{_NAN}\b(?!.{{0,30}}(?:to -?\d|improv))",
)
_add(
    "training loops",
    _N,
    "nan|inf",
    rf"\b{_NAN}\b[-/ ]?(?:or[ /]{_NAN}[ -]?)?(?:values? )?(?:loss|losses|grads?|gradients?|detected|found"
    r"|encountered|occurred|appeared|in (?:the )?(?:local |global )?(?:grad|loss|param|weight|input|tensor|output"
    rf"|logit|activation|model))(?!.{{0,12}}[:=] ?(?:0|false|no)\b)|(?:found|detected|encountered|contains?|got"
    r"|produced|returned|have|has|is|are)\s(?:an? |some "
    rf"|any )?(?:values? )?[`'\"]?{_NAN}\b(?!.{{0,12}}(?:iterations|check|handling))",
)
_add(
    "training loops",
    _N,
    "non-finite|nonfinite|not finite|isfinite|infinite loss|loss is infinite",
    r"(?<!_if_)\bnon-?finite\b(?!.{0,24}(?:=|check|skip\w*: 0))|\b(?:loss|grad\w*|norm|parameters?|weights?"
    r"|values?) (?:is|are|was|were) (?:not finite|infinite)|infinite loss|not finite",
)
_add(
    "PyTorch",
    _N,
    "nan|magnitude of gradient is bad|probability tensor contains",
    r"returned nan values|probability tensor contains|magnitude of gradient is bad"
    r"|nan(?:s)? (?:values? )?in\b.{0,60}(?:backward|forward|layer|step)|invalid loss.{0,24}nan|nan loss",
)
_add("PyTorch", _N, "probability tensor", r"probability tensor contains")
_add(
    "loss scaling",
    _N,
    "loss scale|loss-scale|loss_scale|loss scaler|scaler|reducing to",
    r"minimum loss scale reached|loss[ _]scale already at minimum|loss scale.{0,40}(?:below|too small|at minimum"
    r"|underflow)|reducing loss scale to (?:\d(?:\.\d+)?e-\d+|0\.\d+)|reducing to (?:0\.\d+|\d(?:\.\d+)?e-\d+)\b"
    r"|loss scaler.{0,40}(?:diverg|underflow|exhaust)",
    whole=True,
)
_add(
    "training loops",
    _N,
    "diverg|exploding|exploded|loss spike|gradient|explod",
    r"(?:loss|training|model|optimi[sz]ation) (?:has |is |have )?(?:diverg(?:ed|ing)|explod\w+)|gradients? (?:are"
    r" |is |has |have )?explod\w+|gradient explosion",
    whole=True,
    soft=True,
)

_add("Neuron", _N, "message=numerical error", r"message=numerical error")

_U = LineKind.USER_ERROR_CONFIG
_add(
    "command lines",
    _U,
    "unexpected extra argument|no such option|no such command|missing option|missing argument|missing parameter"
    "|flags parsing error|could not consume arg|__main__|could not find '|merging override|parsing override"
    "|omegaconf.errors|hydra.errors",
    r"^\s{0,8}error: (?:got unexpected extra argument|no such (?:option|command)|missing (?:option|argument|parameter))"
    r"|\bflags parsing error: |\bcould not consume arg: |no module named \S{1,160}\.__main__|^\s{0,8}in '[^']{1,200}':"
    r" could not"
    r" find '|^\s{0,8}error (?:merging|parsing) override|\b(?:omegaconf|hydra)\.errors\.\w{1,60}: ",
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
    r"|requested time limit is invalid"
    r"|invalid (?:account|partition|qos).{0,60}(?:specified|specification)|nccl warn.{0,60}(?:invalid config"
    r"|duplicate gpu)",
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
    "|permissionerror"
    "|(os error 13)|(os error 2)",
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
    r"|signaturedoesnotmatch)\) when"
    r" calling",
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
    r"(?:is not|not|must be|should be|isn't|be) (?:evenly )?divisible|check batch related parameters"
    r"|(?:mat1 and mat2|shapes) (?:shapes )?(?:cannot be|do not match|don't match)"
    r"|expected all tensors to be on the same device|got an unexpected keyword argument"
    r"|missing \d+ required positional|the size of tensor a \(\d+\) must match|expected to have finished reduction",
    whole=True,
)

SIGNATURES = tuple(_ALL.rows)
