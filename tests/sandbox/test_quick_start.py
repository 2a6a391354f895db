"""The quick start, deployed from a bucket by CloudFormation alone: no CDK, no bootstrap, no file of the checkout.

Its images are not built, because the sandbox has no CodeBuild, and its timeouts are short. All else is as released.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest
from gpu_recovery_client.api import RecoveryClient

from release.quick_start_template import TEMPLATE
from sandbox import sandbox
from tests.sandbox.test_heal import EXITS_ONE, GPUS, QUICK, Deployment, statuses

pytestmark = pytest.mark.full

BUCKET, PREFIX = "files-of-the-release", "gpu-recovery/0.2.0/"
PARAMETERS = {"ReleaseBucket": BUCKET, "ReleasePrefix": PREFIX, "ClusterName": sandbox.CLUSTER_NAME}


def deploy(folder: Path, endpoint_url: str, keys: Mapping[str, str], _run: Path) -> dict[str, str]:
    """Upload the quick start and create its stack, as docs/quick-start.md says. Return the outputs of the stack."""
    s3, formation = (sandbox.client(service, endpoint_url, keys) for service in ("s3", "cloudformation"))
    s3.create_bucket(Bucket=BUCKET)
    for path in folder.iterdir():
        s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}{path.name}", Body=path.read_bytes())
    formation.create_stack(
        StackName="gpu-recovery",
        TemplateURL=f"{endpoint_url}/{BUCKET}/{PREFIX}{TEMPLATE}",
        Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in PARAMETERS.items()],
        Capabilities=["CAPABILITY_IAM"],
    )
    formation.get_waiter("stack_create_complete").wait(StackName="gpu-recovery", WaiterConfig={"Delay": 1})
    (stack,) = formation.describe_stacks(StackName="gpu-recovery")["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory, files = tmp_path_factory.mktemp("sandbox"), tmp_path_factory.mktemp("release")
    import_module("release.quick_start").write(files, {"health_check_image": "", "policy": QUICK})

    @contextmanager
    def synthesised(*_arguments: object) -> Iterator[object]:
        yield lambda: files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox.deployment, "synthesis", synthesised)
        patch.setattr(sandbox.deployment, "deploy", deploy)
        patch.setattr(sandbox.deployment, "bootstrap", lambda _clients: None)
        try:
            state = sandbox.up(directory, instances=2, gpus=GPUS)
            with RecoveryClient(state["api_url"], state["operator_token"]) as client:
                yield Deployment(directory, client, {**state, "preset": "adaptive"})
        finally:
            sandbox.down(directory)


def test_a_gpu_fault_heals_in_a_quick_start(deployed: Deployment) -> None:
    """Submission, fault, checks, reboot and relaunch: every function, role and event rule of the template is used."""
    job_id = deployed.submit("quick", EXITS_ONE)
    job = deployed.wait(job_id, lambda job: job["status"] == "RUNNING")
    deployed.until_checkpoint("quick")
    sandbox.fault(deployed.directory, job["instances"][1], "xid79")
    ended = deployed.ends(job_id)
    assert (ended["status"], ended["attempt"]) == ("SUCCEEDED", 2), json.dumps(ended["history"], indent=1)
    assert {"STOPPING", "DIAGNOSING", "RUNNING"} <= set(statuses(ended))
    deployed.until_free()
