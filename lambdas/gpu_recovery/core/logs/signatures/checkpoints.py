"""Log signatures of checkpoints and model files that cannot be loaded."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

_C = LineKind.USER_ERROR_CHECKPOINT
_add(
    "PyTorch",
    _C,
    "deserializing header: |unexpected eof, expected|wrong byte size|attempting to deserialize|badzipfile"
    "|trying to set a tensor of shape|value from checkpoint|not compatible with the stored shape|/.metadata'"
    "|tensorslicereader|dp world size of",
    r"\berror while deserializing header: \w|\bunexpected eof, expected \d+ more bytes|storage has wrong byte size"
    r"|attempting to deserialize object on|\bbadzipfile: file is not|trying to set a tensor of shape torch\.size"
    r"|value from checkpoint \(.{1,60}\) is not equal to|is not compatible with the stored shape"
    r"|no such file or directory: '\S{1,300}/\.metadata'|\bunsuccessful tensorslicereader constructor"
    r"|checkpoint being loaded used an? dp world size of",
    stated=True,
)
_add(
    "transformers",
    _C,
    "can't load |can't find '|untagged enum|but found|but got|does not exist|scopeparamshapeerror"
    "|tree structures do not match",
    r"\bcan't load (?:the )?(?:model|tokenizer|configuration|config|weights|processor|image processor"
    r"|feature extractor) (?:for|of) |\bcan't find '(?:adapter_|config|generation_config|preprocessor)\S{0,40}' at "
    r"|did not match any variant of untagged enum|\bcheckpoint\b.{0,40}expected \d+ .{0,30}but (?:found|got)"
    r"|\bweight \S{1,160} does not exist|\bscopeparamshapeerror\b|value metadata tree structures do not match",
    whole=True,
)
_add(
    "PyTorch",
    _C,
    "keyerror: ",
    r"\bkeyerror: [\"'][\w.]{3,200}\.(?:weight|bias|weight_scale|qweight|qzeros|scales|weight_scale_inv"
    r"|lora_[ab])[\"']\s{0,2}$",
    stated=True,
)
_add(
    "transformers",
    _C,
    "safetensors file is incomplete|any model weights|architecture: |modelproto|unable to load optimizer|unable to"
    " load rng|does not contain tensor",
    r"\bsafetensors file is incomplete|\bcannot find any model weights|\bunknown model architecture: "
    r"|could not parse modelproto|\bunable to load (?:optimizer|rng state) from checkpoint"
    r"|file does not contain tensor ",
    whole=True,
    stated=True,
)
_add(
    "PyTorch",
    _C,
    "copying a param with shape|in state_dict|in source state_dict|in loading state_dict|keyerror: '"
    "|size mismatch between|in checkpoint state_dict|valid deepspeed checkpoint|invalid literal for int()",
    r"copying a param with shape|(?:missing|unexpected) key\(s\) in (?:source )?state_dict"
    r"|missing key in checkpoint state_dict|error\(s\) in loading state_dict|\bkeyerror: '(?:pytorch-lightning_version"
    r"|(?:\w+_)?state_dict|optimizer_states)'|size mismatch between saved|not a valid deepspeed checkpoint"
    r"|invalid literal for int\(\) .{0,60}(?:\.safetensors|\.ckpt|\.pth?|\.bin|ckpt)'$",
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

SIGNATURES = tuple(_ALL.rows)
