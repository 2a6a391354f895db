"""Log signatures of training loops: NaN, infinite and diverging losses."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_NAN = r"(?:[-+]?nan|[-+]?inf(?:inity)?)"

_N = LineKind.NUMERICAL_NAN
_add(
    "training loops",
    _N,
    "nan|inf",
    rf"\b(?!max_|min_|best_|clip_)(?:\w{{0,20}}_)?(?:loss|grad(?:ient)?s?(?:[_ ]?norm)?|gnorm|grad_norm|perplexity|ppl"
    rf"|activations?|logits)(?:[_ ]\w{{1,12}})?[\"']?\s?(?:[:=|]|is|are|was|became|becomes|went|to|of|contains?"
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
    r"returned nan values|probability tensor contains|magnitude of gradient is bad|nan(?:s)?"
    r" (?:values? )?in\b.{0,60}(?:backward|forward|layer|step)|invalid loss.{0,24}nan|nan loss",
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

SIGNATURES = tuple(_ALL.rows)
