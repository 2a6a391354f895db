"""What the program and its libraries write: NaN, checkpoints, dependencies, configuration, crashes, and ends."""

from __future__ import annotations

from .kinds import Kind, Role
from .signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_CASCADE = Role.CASCADE
_NAN = r"(?:[-+]?nan|[-+]?inf(?:inity)?)"

_N = Kind.NUMERICAL_NAN
_add("training loops", _N, "nan|inf", rf"\b(?:\w{{0,20}}_)?(?:loss|grad(?:ient)?s?(?:[_ ]?norm)?|gnorm|grad_norm|perplexity|ppl|activations?|logits)(?:[_ ]\w{{1,12}})?[\"']?\s?(?:[:=|]|is|are|was|became|becomes|went|to|of|contains?|-?>)\s{{0,4}}[\[(]?(?:tensor\(\[?|array\(\[?)?[\"']?{_NAN}\b(?!.{{0,30}}(?:to -?\d|improv))")
_add("training loops", _N, "nan|inf", rf"\b{_NAN}\b[-/ ]?(?:or[ /]{_NAN}[ -]?)?(?:values? )?(?:loss|losses|grads?|gradients?|detected|found|encountered|occurred|appeared|in (?:the )?(?:local |global )?(?:grad|loss|param|weight|input|tensor|output|logit|activation|model))(?!.{{0,12}}[:=] ?(?:0|false|no)\b)|(?:found|detected|encountered|contains?|got|produced|returned|have|has|is|are)\s(?:an? |some |any )?(?:values? )?[`'\"]?{_NAN}\b(?!.{{0,12}}(?:iterations|check|handling))")
_add("training loops", _N, "non-finite|nonfinite|not finite|isfinite|infinite loss", r"(?<!_if_)\bnon-?finite\b(?!.{0,24}(?:=|check|skip\w*: 0))|\b(?:loss|grad\w*|norm|parameters?|weights?|values?) (?:is|are|was|were) (?:not finite|infinite)|infinite loss|not finite")
_add("PyTorch", _N, "nan", r"returned nan values|probability tensor contains|magnitude of gradient is bad|nan(?:s)? (?:values? )?in\b.{0,60}(?:backward|forward|layer|step)|invalid loss.{0,24}nan|nan loss")
_add("PyTorch", _N, "probability tensor", r"probability tensor contains")
_add("loss scaling", _N, "loss scale|loss-scale|loss_scale|loss scaler|scaler", r"minimum loss scale reached|loss[ _]scale already at minimum|loss scale.{0,40}(?:below|too small|at minimum|underflow)|reducing loss scale to (?:\d(?:\.\d+)?e-\d+|0\.\d+)|reducing to (?:0\.\d+|\d(?:\.\d+)?e-\d+)\b|loss scaler.{0,40}(?:diverg|underflow|exhaust)", whole=True)
_add("training loops", _N, "diverg|exploding|exploded|loss spike", r"(?:loss|training|model|optimi[sz]ation) (?:has |is |have )?(?:diverg(?:ed|ing)|explod\w+)|gradients? (?:are |is |has |have )?explod\w+|gradient explosion", whole=True, soft=True)

_C = Kind.USER_ERROR_CHECKPOINT
_add("PyTorch", _C, "state_dict|size mismatch|missing key|unexpected key|state dict", r"error\(?s?\)? in loading state_dict|size mismatch for \S+|(?:missing|unexpected) key\(?s?\)? in (?:source )?state_dict|loaded state dict.{0,80}(?:doesn't|does not|contains|mismatch|has different)|state[_ ]?dict.{0,60}(?:mismatch|corrupt|incompatible)")
_add("PyTorch", _C, "pytorchstreamreader|load key|unpickl|weights only|weights_only|central directory|ran out of input|corrupt|magic number|pickle", r"pytorchstreamreader failed|invalid load key|unpicklingerror|weights[ _]only.{0,40}(?:load )?fail|failed finding central directory|ran out of input|invalid magic number|pickle data was truncated|(?:checkpoint|weights?|model|safetensors|shard)\b.{0,60}corrupt|corrupt\w*.{0,40}(?:checkpoint|weights?|model file|shard|safetensors)")
_add("safetensors", _C, "safetensor", r"safetensor\w*error|safetensors.{0,60}(?:header|corrupt|truncat|incomplete)|while deserializing header")
_add("training loops", _C, "checkpoint|ckpt", r"(?:checkpoint|ckpt)\S{0,24}.{0,120}(?:mismatch|incompatible|not (?:found|exist)|does(?:n't| not) exist|cannot be loaded|could not be (?:found|loaded)|missing|invalid|fail\w* to load|different)(?!.{0,60}(?:from scratch|will start|starting|random))|(?:fail\w*|unable|error|cannot|could not|couldn't|can't)\b.{0,40}(?:load|find|restor|read|resum|open)\w*.{0,40}(?:checkpoint|ckpt)(?!.{0,60}(?:from scratch|will start|starting|random))|no (?:valid )?(?:checkpoint|ckpt)s? (?:\w+ ){0,2}found(?!.{0,60}(?:from scratch|starting|start))|checkpoint\w*(?:exception|error)")
_add("transformers", _C, "no file named|safetensors", r"no file named.{0,120}found in|error no file named|does not appear to have (?:a )?files? named")
_add("PyTorch", _C, "loading", r"error (?:while |when |in )?(?:loading|restoring|resuming).{0,40}(?:checkpoint|weights|model state|optimizer)")

_D = Kind.USER_ERROR_DEPENDENCY
_add("Python", _D, "no module named|modulenotfound|importerror|cannot import", r"modulenotfounderror|no module named\b|\bimporterror\b|cannot import name")
_add("loader", _D, "undefined symbol|shared object|glibc|glibcxx|cxxabi|shared librar", r"undefined symbol|cannot open shared object|version [`'\"]?(?:glibc|glibcxx|cxxabi)\S{0,20}.{0,4} not found|error while loading shared librar|symbol lookup error")
_add("pip", _D, "distribution|requires|versionconflict|version conflict|incompatible|conflict|packagenotfound", r"no matching distribution|could not find a version that satisfies|versionconflict|version conflict|(?:package|distribution)notfound\w*|the following dependencies|requires .{0,60}(?:but you have|but you'll have|which is not installed|to be installed|but found)|is incompatible with|incompatible version|dependency (?:conflict|resolver)|(?:requires?|needs?) (?:the )?[\w.-]{2,40}\s?(?:>=|==|<=|<|>|~=) ?\d[\w.]*|resolutionimpossible")
_add("Python", _D, "not installed|is required|not compiled|cuda_home|building extension|ninja|compile", r"(?:error|exception|fatal)\b.{0,160}(?:is |are )?not (?:be )?installed|is not installed(?:\.|$)|not compiled with (?:cuda|nccl|flash|mpi|gpu)|cuda_home (?:environment variable )?(?:is not set|does not exist)|error (?:building|compiling|in building) (?:extension|op|wheel)?|ninja is required|(?:failed|unable) to (?:build|compile|jit|load).{0,40}(?:extension|\bops?\b|wheel|kernel module|fused|cpu_adam)|unable to jit load|installed cuda version .{0,80}does not match|compiled with different cuda|detected cuda version .{0,60}mismatch|failed to build (?:wheel|installable)", whole=True)
_add("Python", _D, "has no attribute", r"module '\S{1,80}' has no attribute|partially initialized module|numpy\.\w+ size changed|compiled using numpy 1|_array_api not found")
_add("Python", _D, "numpy.dtype size|compiled using numpy|_array_api|binary incompat", r"size changed, may indicate binary incompat|compiled using numpy 1|_array_api not found", whole=True)

_U = Kind.USER_ERROR_CONFIG
_add("Hydra", _U, "omegaconf|hydra|config", r"\bomegaconf\.|\bhydra\.errors|could not override|is not in struct|configattributeerror|missingmandatoryvalue|(?:invalid|missing|unknown|unsupported|bad) (?:config(?:uration)?|option|hyperparameter|setting)s?\b(?=.{0,4}[:'\"` (]|$)|config\w*error\b|missingconfigexception|(?:config|configuration) (?:file )?.{0,120}(?:not found|does not exist|is invalid|missing)|error (?:parsing|reading|in) .{0,30}config")
_add("argparse", _U, "error: ", r"\berror: (?:unrecognized arguments?|the following arguments are required|argument |ambiguous option|no such option|invalid choice|unknown option|missing option|invalid value)")
_add("pydantic", _U, "validation error|validationerror|jsondecodeerror|scannererror|parsererror|tomldecode|yaml.", r"\bvalidation errors? for\b|\bvalidationerror\b|jsondecodeerror|yaml\.\w+\.\w+error|(?:scanner|composer|constructor)error|tomldecodeerror|while parsing a (?:block|flow)")
_add("transformers", _U, "valid model identifier|repositorynotfound|gated|401 client|403 client|unauthorized|repository not found|entrynotfound|access to model", r"not a (?:local folder|valid model identifier)|repository ?not ?found|gatedrepoerror|gated repo|40[134] client error|access to model .{0,80}restricted|(?:remote)?entrynotfounderror|invalid (?:user )?token|unauthorized", whole=True)
_add("CUDA", _U, "duplicate gpu|ncclinvalid|invalid usage|invalid argument (run", r"duplicate gpu detected|nccl ?invalid ?(?:usage|argument)|invalid usage|no socket interface found", whole=True)
_add("shell", _U, "command not found|can't open file|no such file|errno 2]|permission denied|is a directory|errno 13]|not a directory|enoent|filenotfound|cannot find the path", r"command not found|can't open file|\[errno (?:2|13|20|21|17)\]|\bno such file or directory\b|permission denied|filenotfounderror|notadirectoryerror|isadirectoryerror|permissionerror|\(os error (?:2|13)\)|\benoent\b", soft=True)
_add("training loops", _U, "divisible|must be|should be|expected|got an unexpected|not supported|cannot be|mat1|same device|required positional|do not match|does not match|not equal", r"(?:is not|not|must be|should be|isn't|be) (?:evenly )?divisible|check batch related parameters|(?:mat1 and mat2|shapes) (?:shapes )?(?:cannot be|do not match|don't match)|expected all tensors to be on the same device|got an unexpected keyword argument|missing \d+ required positional|the size of tensor a \(\d+\) must match|expected to have finished reduction", whole=True)

_K = Kind.PROCESS_KILLED_UNKNOWN
_add("Ray", _K, "actordied|actor died|workercrashed|rayactorerror|worker died|worker exit|workers died|actorunavailable|process died|owner died|ownerdied|localrayletdied", r"actordiederror|\bactor (?:\S{1,80} )?(?:has )?died|workercrashederror|rayactorerror|actorunavailableerror|\bworkers? (?:process(?:es)? )?(?:has |have |was |were )?(?:died|unexpectedly (?:exit|died))|worker exit type|process(?:es)? (?:has |have )?died|owner\w*died\w*|localrayletdied", whole=True)
_add("shell", _K, "sigkill|exitcode|exit code|return code|exited|status 9|status 137|signal|returncode|killed", r"signals\.sigkill|\bsigkill\b(?!_handler)|(?:exit ?code|return ?code|status|exitcode|returncode)\s{0,2}[:=]?\s{0,2}\(?(?:137|-9|9)\b|signal ?(?:9|: ?9|kill)\b|killed by signal|(?:exited|exits?|exit) .{0,24}(?:137|-9)\b|^\s{0,8}killed\s{0,4}$|\bline \d+:\s+\d+ killed\b|task \d+(?:[-,]\d+)*: killed|killed\s+(?:python|torchrun|bash|accelerate|deepspeed|mpirun|srun)|(?:process|worker|child|rank)\w*.{0,40} (?:was|were|got|been) killed\b")
_add("PyTorch", _K, "exited unexpectedly|died unexpectedly|terminated unexpectedly|unexpectedly exit|unexpectedly terminated|engine core", r"(?:exited|died|terminated|quit) unexpectedly|unexpectedly (?:exit|terminat|die)\w*|engine ?core.{0,40}(?:died|dead|initialization failed)|enginedeaderror", whole=True)

_X = Kind.PROCESS_CRASH
_add("kernel", _X, "segfault|segmentation fault|sigsegv|trap|traps:", r"\bsegfault\b|segmentation fault|\bsigsegv\b|\btrap (?:invalid opcode|divide error|int3)|traps: \S{1,80}.{0,40}(?:trap|general protection)|invalid opcode ip")
_add("Python", _X, "fatal python error|core dumped|sigabrt|sigbus|sigfpe|sigill|bus error|illegal instruction|floating point exception|aborted|signal 6|signal 4|signal 7|signal 8|signal 11|exitcode: -|exit code 13|code -", r"fatal python error|\bcore dumped\b|\bsig(?:abrt|bus|fpe|ill)\b|\bbus error\b|illegal instruction(?! param)|floating point exception|^\s{0,8}aborted\b|\baborted \(core|signal:? ?(?:6|4|7|8|11)\b|exit ?code:? ?-(?:4|6|7|8|11)\b|exit ?code:? ?(?:132|134|135|136|139)\b|(?:return|exit) ?code ?[=:]? ?-(?:4|6|7|8|11)\b|task \d+: aborted")
_add("glibc", _X, "free()|malloc()|malloc(): |corruption|corrupted|munmap_chunk|stack smashing|realloc(): |double free|buffer overflow", r"double free or corruption|\b(?:free|malloc|realloc|munmap_chunk|malloc_consolidate|_int_free)\(\): |corrupted (?:size|double-linked|unsorted)|stack smashing detected|buffer overflow detected|heap corruption")
_add("C++", _X, "terminate called|pure virtual|unhandled exception|process received signal|received signal|check failed|check failure", r"terminate called|pure virtual method called|process received signal|unhandled exception: (?!.{0,20}std)|check failure stack trace|\bf\d{4} .{0,80}check failed", _CASCADE)
_add("torch elastic", _X, "childfailederror|exitcode|exit code|return code|exited with|failed (exit", r"childfailederror|failed \(exitcode: ?\d+|exit ?code ?[:=]? ?\(?[1-9]\d{0,2}\b|return ?code ?[:=]? ?[1-9]\d{0,2}\b|exited with (?:exit )?(?:code|status) [1-9]|returned non-zero exit status|exits with return code = [1-9]|processraisedexception", _CASCADE, soft=True, generic=True)

# What is left of exceptions: the program's own errors.
_EXCEPTION = r"^\s{0,8}(?:[\w.]{1,160}\.)?(?:[a-z_]\w{0,80}(?:error|exception)|keyboardinterrupt|systemexit|\w{1,80}errorgroup)(?:\(|: |:?\s{0,4}$)"
_add("Python", Kind.PROCESS_CRASH, "raytaskerror|raytaskerror(|remote_traceback|processexitedexception", r"raytaskerror|processexitedexception", _CASCADE, generic=True)
_add("Python", _U, "error|exception", rf"{_EXCEPTION}(?!.{{0,200}}\bretry)", soft=True, generic=True, whole=True)

SIGNATURES = tuple(_ALL.rows)
