"""Deployment of the production stacks: synthesised once per version of the code, deployed by the real CDK.

Synthesis takes most of the time and depends only on files and context, so its result is saved under the hash of both.
The sandbox reads the names and ids of the deployment from the stacks' outputs.
"""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import py_compile
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sandbox import credentials, processes
from sandbox.ministack.command import ACCOUNT, REGION

ROOT = Path(__file__).parent.parent
ASSEMBLIES = ROOT / ".sandbox/cdk.out"
CDK = ROOT / "node_modules/.bin/cdk"
SOURCES = ("app.py", "cdk.json", "infra", "lambdas", "console/served")
LIBRARIES = ("aws-cdk-lib", "constructs")
ASSEMBLIES_MAX = 8
"""Saved syntheses, at most: more than the tests have settings, so that each run finds those of the run before."""
BOOTSTRAP_VERSION = "30"
BOOTSTRAP_BUCKET = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"


def _files() -> Iterator[Path]:
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            files = (p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
            yield from sorted(files)
        else:
            yield path


def fingerprint(context: Mapping[str, Any]) -> str:
    """Return the name of a synthesis: the hash of sources, context and library versions, 16 hexadecimal digits."""
    digest = hashlib.sha256(json.dumps([sorted(context.items()), [version(name) for name in LIBRARIES]]).encode())
    for path in _files():
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _environment(run: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return processes.clean_environment(
        {
            **processes.own_folders(run),  # so that the CDK reads no ~/.aws and no ~/.cdk.json
            "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(jsii_cache()),
            "CDK_DISABLE_CLI_TELEMETRY": "true",  # with --no-notices: no network
            "NODE_NO_WARNINGS": "1",
            # The Makefile warns of Node 20. A log that is shown after a failure must begin with the error.
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
            **(extra or {}),
        }
    )


def jsii_cache() -> Path:
    """Return the user's own cache of jsii, into which it unpacks the CDK's libraries. HOME of the CDK is another."""
    folders = {"darwin": "Library/Caches/com.amazonaws.jsii/package-cache"}
    return Path.home() / folders.get(sys.platform, ".cache/aws/jsii/package-cache")


def is_synthesised(context: Mapping[str, Any]) -> bool:
    """Whether the stacks under `context` are synthesised already."""
    return (ASSEMBLIES / fingerprint(context)).exists()


@contextmanager
def synthesis(context: Mapping[str, Any], run: Path) -> Iterator[Callable[[], Path]]:
    """Synthesise the stacks with `context` in parallel to the block, unless the result is already saved.

    `run` is the folder of this sandbox. Yields a function that waits for the cloud assembly and returns its folder.
    The function raises SandboxError with the CDK's message if the synthesis fails.
    """
    assembly = ASSEMBLIES / fingerprint(context)
    if assembly.exists():
        os.utime(assembly)
        yield lambda: assembly
        return
    draft = run / "cdk.out"
    options = [part for key, value in context.items() for part in ("-c", f"{key}={_context_value(value)}")]
    app = f"{shlex.quote(sys.executable)} app.py"
    # Without the CDK's rules for templates, which take as long again as the rest: the tests of infra apply them.
    flags = ["--quiet", "--no-notices", "--no-validation"]
    command = [str(CDK), "synth", *flags, "--app", app, "--output", str(draft), *options]
    with processes.running(command, _environment(run), ROOT, run / "synth.log") as wait:

        def finish() -> Path:
            wait()
            _store(draft, assembly)
            return assembly

        yield finish


def _compile(assembly: Path) -> None:
    """Add compiled files to the functions' packages: each function of the sandbox is several processes that import one.

    The files are valid without regard to the time of the sources, which unpacking changes. A package is named after the
    hash of its content. So it is taken from a saved synthesis, if one has it: other settings rarely change a package.
    """
    for package in assembly.glob("asset.*"):
        if not _replaced_by_a_saved_one(package):
            compileall.compile_dir(package, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def _replaced_by_a_saved_one(package: Path) -> bool:
    """Replace a package by a saved one that has compiled files for this interpreter. Returns False if there is none."""
    draft = package.with_suffix(".saved")
    for saved in ASSEMBLIES.glob(f"*/{package.name}"):
        try:
            shutil.copytree(saved, draft, copy_function=_link_or_copy)
        except (OSError, shutil.Error):  # another sandbox has just removed it
            shutil.rmtree(draft, ignore_errors=True)
        else:
            if next(draft.rglob(f"*.{sys.implementation.cache_tag}.pyc"), None):
                shutil.rmtree(package)
                draft.rename(package)
                return True
            shutil.rmtree(draft)
    return False


def _link_or_copy(source: str, target: str) -> None:
    """Link a file, which nobody changes; copy it into another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _store(draft: Path, assembly: Path) -> None:
    _compile(draft)
    ASSEMBLIES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stored-", dir=ASSEMBLIES.parent) as folder:
        whole = shutil.move(draft, Path(folder) / "cdk.out")  # copies, if the draft is in another file system
        try:
            os.rename(whole, assembly)
        except OSError:
            if not assembly.exists():  # another sandbox may have stored the same assembly meanwhile
                raise
    newest_first = sorted(ASSEMBLIES.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for old in newest_first[ASSEMBLIES_MAX:]:
        shutil.rmtree(old, ignore_errors=True)


def _context_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def bootstrap(clients: Mapping[str, Any]) -> None:
    """Create the results of `cdk bootstrap` that a deployment needs: the version and the bucket for assets."""
    clients["ssm"].put_parameter(
        Name="/cdk-bootstrap/hnb659fds/version", Value=BOOTSTRAP_VERSION, Type="String", Overwrite=True
    )
    clients["s3"].create_bucket(Bucket=BOOTSTRAP_BUCKET)


def deploy(assembly: Path, endpoint_url: str, keys: Mapping[str, str], run: Path) -> dict[str, str]:
    """Deploy every stack of the assembly. Returns the outputs of all stacks by name.

    Raises:
        SandboxError: A stack failed; the text has the CDK's message.
    """
    outputs = run / "outputs.json"
    command = [
        str(CDK),
        "deploy",
        "--all",
        "--app",
        str(assembly),
        "--method=direct",
        "--require-approval=never",
        "--no-notices",
        "--progress=events",
        f"--outputs-file={outputs}",
    ]
    aws = {
        "AWS_ENDPOINT_URL": endpoint_url,
        **credentials.key_variables(keys),
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with processes.running(command, _environment(run, aws), run, run / "deploy.log") as wait:
        wait()
    stacks = json.loads(outputs.read_text())
    return {name: value for stack in stacks.values() for name, value in stack.items()}
