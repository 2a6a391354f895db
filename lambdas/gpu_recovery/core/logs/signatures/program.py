"""Log signatures of programs: NaN, checkpoints, dependencies, configuration."""

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
_add(
    "PyTorch",
    _N,
    "probability tensor|floatingpointerror|infinite or nan|found invalid values|(nan)|loss nan"
    "|loss inf|norm nan|norm inf",
    r"probability tensor contains|\bfloatingpointerror: |\b(?:became|is|was) infinite or nan\b|invalid value \(nan\)"
    r"|satisfy the constraint .{1,160}but found invalid values"
    r"|(?<!best )(?<!_)\b(?:loss|grad_norm|gnorm) (?:nan|inf)\b",
)
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

_C = LineKind.USER_ERROR_CHECKPOINT
_add(
    "PyTorch",
    _C,
    "copying a param with shape|in state_dict|in source state_dict|in loading state_dict|keyerror: '"
    "|size mismatch between|in checkpoint state_dict|valid deepspeed checkpoint|invalid literal for int()",
    r"copying a param with shape|(?:missing|unexpected) key\(s\) in (?:source )?state_dict"
    r"|missing key in checkpoint state_dict|error\(s\) in loading state_dict"
    r"|\bkeyerror: '(?:pytorch-lightning_version|(?:\w+_)?state_dict|optimizer_states)'|size mismatch between saved"
    r"|not a valid deepspeed checkpoint|invalid literal for int\(\) .{0,60}(?:\.safetensors|\.ckpt|\.pth?|\.bin"
    r"|ckpt)'$",
    stated=True,
)
_add(
    "PyTorch",
    _C,
    "state_dict|size mismatch|missing key|unexpected key|state dict|incompatible|mismatch|corrupt",
    r"error\(?s?\)? in loading state_dict|size mismatch (?:for|between) \S+|(?:missing"
    r"|unexpected) key\(?s?\)? in (?:source )?state_dict|loaded state dict.{0,80}(?:doesn't|does not|contains"
    r"|mismatch|has (?:a )?different)|state[_ ]?dict.{0,60}(?:mismatch|corrupt|incompatible)",
)
_add(
    "PyTorch",
    _C,
    "pytorchstreamreader|load key|unpickl|weights only|weights_only|central directory"
    "|ran out of input|corrupt|magic number|pickle",
    r"pytorchstreamreader failed|invalid load key|unpicklingerror|weights[ _]only.{0,40}(?:load )?fail"
    r"|failed finding central directory|ran out of input|invalid magic number|pickle data was truncated"
    r"|(?:checkpoint|weights?|model|safetensors|shard)\b.{0,60}corrupt|corrupt\w*.{0,40}(?:checkpoint|weights?"
    r"|model file|shard|safetensors)",
)
_add(
    "safetensors",
    _C,
    "safetensor|while deserializing header",
    r"safetensor\w*error|safetensors.{0,60}(?:header|corrupt|truncat|incomplete)|while deserializing header",
)
_add(
    "training loops",
    _C,
    "checkpoint|ckpt",
    r"(?:checkpoint|ckpt)\S{0,24}.{0,120}(?:mismatch|incompatible|not (?:found|exist)|does(?:n't| not) exist"
    r"|cannot be loaded|could not be (?:found|loaded)|missing|invalid|fail\w* to load"
    r"|different)(?!.{0,60}(?:from scratch|will start|starting|random))|(?:fail\w*|unable|error|cannot|could not"
    r"|couldn't|can't)\b.{0,40}(?:load|find|restor|read|resum|open)\w*.{0,40}(?:checkpoint"
    r"|ckpt)(?!.{0,60}(?:from scratch|will start|starting|random))|no (?:valid )?(?:checkpoint"
    r"|ckpt)s? (?:\w+ ){0,2}found(?!.{0,60}(?:from scratch|starting|start))|checkpoint\w*(?:exception|error)",
)
_add(
    "ggml",
    _C,
    "error loading model|wrong number of tensors|gguf|within the file bounds",
    r"error loading model: .{0,60}(?:missing tensor|\btensor '.{1,80}' (?:has wrong shape|not found)|corrupted)"
    r"|wrong number of tensors; expected|gguf_init_from_\w{2,12}: invalid magic|failed to load gguf"
    r"|data is not within the file bounds",
    stated=True,
)
_add(
    "vLLM",
    _C,
    "module or parameter named|weights were not|not found in checkpoint|unable to open table file",
    r"there is no module or parameter named|weights were not initialized from checkpoint"
    r"|\bkey \S{1,120} not found in checkpoint|unable to open table file",
)
_add(
    "transformers",
    _C,
    "no such file|errno 2]|filenotfound",
    r"(?:no such file or directory|\[errno 2\]|filenotfounderror).{0,200}(?:\bpytorch_model|\badapter_model"
    r"|\bmodel\S{0,30}\.safetensors|\boptimizer\.(?:pt|bin)\b|\btrainer_state\.json|_states\.pt\b|\brng_state"
    r"|\bcheckpoint[-_]\d+\b|\bmp_rank_\d|\bconsolidated\.\d+\.pth|\.(?:ckpt|distcp)\b"
    r"|latest_checkpointed_iteration)",
    stated=True,
)
_add(
    "transformers",
    _C,
    "no file named|safetensors|does not appear to have",
    r"no file named.{0,120}found in|error no file named|does not appear to have (?:a )?files? named",
)
_add(
    "PyTorch",
    _C,
    "loading|checkpoint",
    r"error (?:while |when |in )?(?:loading|restoring|resuming).{0,40}(?:checkpoint|weights|model state|optimizer)",
)

_D = LineKind.USER_ERROR_DEPENDENCY
_add(
    "Python",
    _D,
    "no module named|modulenotfound|importerror|cannot import|failed to import",
    r"modulenotfounderror|no module named\b|\bimporterror\b|cannot import name|failed to import \S+ because",
)
_add(
    "loader",
    _D,
    "undefined symbol|shared object|glibc|glibcxx|cxxabi|shared librar|symbol lookup error|find the operator",
    r"undefined symbol|cannot open shared object|version [`'\"]?(?:glibc|glibcxx|cxxabi)\S{0,20}.{0,4} not found"
    r"|error while loading shared librar|symbol lookup error|could not find the operator \w{2,40}::",
)
_add(
    "loader",
    _D,
    ": undefined symbol: _z",
    r"^\s{0,8}/\S{1,300}\.so[\d.]{0,12}: undefined symbol: _z",
    stated=True,
)
_add(
    "pip",
    _D,
    "distribution|requires|versionconflict|version conflict|incompatible|conflict|packagenotfound"
    "|require|could not find a version that satisfies|the following dependencies|resolutionimpossible"
    "|dependency resolver|need",
    r"no matching distribution|could not find a version that satisfies|versionconflict|version conflict|(?:package"
    r"|distribution)notfound\w*|the following dependencies|requires .{0,60}(?:but you have|but you'll have"
    r"|which is not installed|to be installed|but found)|is incompatible with|incompatible version"
    r"|dependency (?:conflict|resolver)|(?:requires?|needs?) (?:the )?[\w.-]{2,40}\s?(?:>=|==|<=|<|>|~=) ?\d[\w.]*"
    r"|resolutionimpossible",
)
_add(
    "Python",
    _D,
    "not installed|is required|not compiled|cuda_home|building extension|ninja|compile|build|version"
    "|load|error compiling|failed to jit",
    r"(?:error|exception|fatal)\b.{0,160}(?:is |are )?not (?:be )?installed|is not installed(?:\.|$)"
    r"|not compiled with (?:cuda|nccl|flash|mpi|gpu)|cuda_home (?:environment variable )?(?:is not set"
    r"|does not exist)|error (?:building|compiling|in building) (?:extension|op|wheel)?|ninja is required"
    r"|(?:failed|unable) to (?:build|compile|jit|load).{0,40}(?:extension|\bops?\b|wheel|kernel module|fused"
    r"|cpu_adam)|unable to jit load|installed cuda version .{0,80}does not match|compiled with different cuda"
    r"|detected cuda version .{0,60}mismatch|failed to build (?:wheel|installable)",
    whole=True,
)
_add(
    "Python",
    _D,
    "has no attribute|numpy|partially initialized module|_array_api not found",
    r"module '\S{1,80}' has no attribute|partially initialized module|numpy\.\w+ size changed"
    r"|compiled using numpy 1|_array_api not found",
)
_add(
    "Python",
    _D,
    "numpy.dtype size|compiled using numpy|_array_api|binary incompat",
    r"size changed, may indicate binary incompat|compiled using numpy 1|_array_api not found",
    whole=True,
)

_U = LineKind.USER_ERROR_CONFIG
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
