"""Log signatures of missing and incompatible packages, libraries and compilers."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

_D = LineKind.USER_ERROR_DEPENDENCY
_add(
    "loader",
    _D,
    "no module named|not found (required by|versionconflict|distributionnotfound|no solution found|version solving"
    "|packagenotfound: |locationnotfound: |tritonmissing",
    r"^\S{0,200}\bpython[\d.]{0,6}: no module named (?!\S{1,160}\.__main__)|\(?version"
    r" [`']\S{1,40}' not found \(required by|\bpkg_resources\.(?:\w{0,20}versionconflict|distributionnotfound)"
    r"|no solution found when resolving dependencies|\bversion solving failed|\bresolvepackagenotfound: "
    r"|\benvironmentlocationnotfound: |\btritonmissing\b",
    stated=True,
)
_add("CMake", _D, "cmake error at", r"\bcmake error at \S{1,200}:\d", stated=True)
_add(
    "compilers",
    _D,
    "cannot find -l|fatal error: ",
    r"\bld: cannot find -l\w|: fatal error: \S{1,200}\.(?:h|hpp|hxx|cuh): no such file",
    LineRole.WARNING,
    stated=True,
)
_add("Ninja", _D, "build stopped", r"\bninja: build stopped", LineRole.WARNING, stated=True)
_add(
    "pip",
    _D,
    "error: |failed to build|failed building|could not build wheels|invalid requirement|could not install packages"
    "|custom c++ ops|created directly|memory_efficient|installed version of|conflicting dependencies|different python"
    "|supported wheel|packagesnotfound|unsatisfiable|resolvepackagenotfound|modulefile|nvcc fatal",
    r"^\s{0,8}error: [a-z]{2,24}(?:-[a-z]{2,24}){1,5}\s{0,4}$|\bfailed to build ['\"]?[\w.-]{1,60}['\"]? when"
    r"|\binvalid requirement: |could not install packages due to|couldn't load custom c\+\+ ops"
    r"|descriptors cannot be created directly|no operator found for `memory_efficient"
    r"|currently installed version of .{0,80}not yet supported|have conflicting dependencies"
    r"|requires a different python|is not a supported wheel on this|failed building (?:wheel|editable)"
    r"|could not build wheels for|\berror: (?:subprocess-exited-with-error|metadata-generation-failed"
    r"|externally-managed-environment|command '\S{1,200}' failed)|\bpackagesnotfounderror\b|unsatisfiableerror\b"
    r"|\bresolvepackagenotfound\b|unable to locate a modulefile|\bnvcc fatal\b",
)
_add(
    "pip",
    _D,
    "but you have|but you'll have|which is not installed",
    r"^\s{0,8}(?:error: )?[\w.\[\]-]{1,80} \d[\w.+!-]{0,40} (?:requires|has requirement) [\w.\[\]-]{1,80}.{0,120},"
    r" (?:but you(?:'ll)? have [\w.-]{1,80} \S{1,40}(?: which is incompatible|\s{0,4}$)|which is not installed)",
    LineRole.WARNING,
    stated=True,
)
_add(
    "package managers",
    _D,
    "is not installable|distutils installed project|do not match the hashes|is not a valid wheel|located at"
    "|cannot import 'setuptools|unable to locate package|no installation candidate|held broken packages|unmet depend"
    "|nothing provides|none of the providers|libmambaunsatisfiable|we can conclude that|following packages are incomp"
    "|unable to resolve dependency tree|unable to find a match",
    r"\berror: (?:directory .{1,200} is not installable|cannot uninstall .{1,200}distutils installed project|these"
    r" packages do not match the hashes|\S{1,200} is not a valid wheel|wheel .{1,300} located at .{1,400} is invalid"
    r"|unable to find a match: )|\bbackendunavailable: cannot import 'setuptools|^\s{0,4}e: (?:unable to locate package"
    r"|package '?\S{1,80} has no installation candidate|.{0,60}held broken packages)|following packages have unmet"
    r" dependencies|\bnothing provides (?:requested )?\S{1,80}.{0,60}(?:needed by|\s{0,4}$)|none of the providers can"
    r" be installed|\blibmambaunsatisfiableerror\b|\bwe can conclude that .{1,400}(?:unsatisfiable|incompatible"
    r"|cannot be used)|following packages are incompatible|\bunable to resolve dependency tree",
    stated=True,
)
_add(
    "pip",
    _D,
    "did not run successfully|error code",
    r"^\s{0,8}\S? ?python setup\.py \w{1,24} did not run successfully|failed with error code \d+ in /\S{0,40}pip-",
    stated=True,
)
_add(
    "Lmod",
    _D,
    "module(s) are unknown",
    r"following module\(s\) are unknown: ",
    stated=True,
)
_add(
    "Python",
    _D,
    "numpy is not available|operator torch|could not run 'torch|package doesn't have|working triton|c compiler"
    "|classnotfoundexception|noclassdeffound",
    r"\bnumpy is not available|\boperator torch\w{2,12}::\w{1,40} does not exist|\bcould not run 'torch\w{2,12}::"
    r"|distributed package doesn't have \w{2,8} built|cannot find a working triton|failed to find c compiler"
    r"|\b(?:classnotfoundexception|noclassdeffounderror): ",
)
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

SIGNATURES = tuple(_ALL.rows)
