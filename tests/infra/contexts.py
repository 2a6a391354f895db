"""The sets of context keys that the stacks are synthesised with."""

from typing import Any

FORMER_NAME: dict[str, Any] = {"gpu-recovery:policy": {"look_s": 60, "attempts_max": 2}}
"""The development profile, with a former name of a setting."""
PROD = {"gpu-recovery:profile": "prod"}
EVERYTHING = {
    **PROD,
    "gpu-recovery:replace": "true",
    "gpu-recovery:tag_repairs": "true",
    "gpu-recovery:chat_topic": "true",
    "gpu-recovery:alert_emails": "ops@example.com,night@example.com",
    "gpu-recovery:alert_endpoints": "https://alerts.example.com/gpu,arn:aws:sqs:us-east-1:111122223333:incidents",
    "gpu-recovery:log_retention_days": "120",
    "gpu-recovery:log_level": "ERROR",
    "gpu-recovery:powertools_layer": "public",
    "gpu-recovery:reserved_concurrency": "2",
    "gpu-recovery:policy": '{"attempts_max": 5}',
    "gpu-recovery:preset": "classic",
    "gpu-recovery:adopt": "recover",
    "gpu-recovery:training_task_families": "llm,vision",
    "gpu-recovery:managed_tag_key": "team:healed",
    "gpu-recovery:training_role_arns": ["arn:aws:iam::111122223333:role/training-task"],
    "gpu-recovery:node_role_arns": [
        "arn:aws:iam::111122223333:role/gpu-nodes",
        "arn:aws:iam::111122223333:role/teams/more-nodes",
    ],
    "gpu-recovery:api_auth": "iam",
    "gpu-recovery:api_roles": {
        "arn:aws:iam::111122223333:role/teams/gpu-operators": "operator",
        "arn:aws:iam::111122223333:user/ana": "user",
    },
    "gpu-recovery:training_log_groups": "/ecs/llm,/ecs/vision",
    "gpu-recovery:snap_start": "true",
    "gpu-recovery:check_host_engine": "host",
    "gpu-recovery:health_check_image": "444455556666.dkr.ecr.eu-west-1.amazonaws.com/checks/gpu@sha256:" + 64 * "7",
}
"""Settings that differ from the default wherever they can, with every optional part on."""

_MIRROR = "444455556666.dkr.ecr.us-west-2.amazonaws.com/mirror"
BASE_IMAGES = {
    "gpu-recovery:health_check_base_image": f"{_MIRROR}/dcgm:4@sha256:{64 * '1'}",
    "gpu-recovery:ray_base_image": f"{_MIRROR}/python:3.13@sha256:{64 * '2'}",
    "gpu-recovery:agent_base_image": f"public.ecr.aws/docker/library/python:3.11-slim@sha256:{64 * '3'}",
}
"""The base of each image by digest: two in a registry of another account and region, and one in a public registry."""

RAY = {
    "gpu-recovery:ray_dashboard": "http://ray.internal:8265",
    "gpu-recovery:ray_control_store": "ray.internal:6379",
    "gpu-recovery:ray_subnet_ids": "subnet-0a1b2c3d",
    "gpu-recovery:ray_security_group_ids": "sg-0a1b2c3d",
    **BASE_IMAGES,
    "gpu-recovery:build_agent_image": "true",
    "gpu-recovery:node_agent": "daemon",
    "gpu-recovery:agent_gpu_reset_instance_types": "p5.48xlarge,p4d.*",
    "gpu-recovery:agent_gpu_reset_services": "nvidia-dcgm.service",
    "gpu-recovery:agent_gpu_events": "true",
    "gpu-recovery:policy": '{"gpu_reset": true}',
    "gpu-recovery:log_level": "DEBUG",
    "gpu-recovery:snap_start": "true",
}
"""A Ray cluster and the agent's service beside the defaults, every log line, every image that can be built, the base
of each by digest, and the start from snapshots."""

LAYER_ARN = "arn:aws:lambda:us-east-1:111122223333:layer:our-packages:3"
OWN_IMAGES = {
    **RAY,
    **dict.fromkeys(BASE_IMAGES, ""),
    "gpu-recovery:powertools_layer": LAYER_ARN,
    "gpu-recovery:health_check_image": "",
    "gpu-recovery:build_agent_image": "false",
    "gpu-recovery:node_agent": "off",
    "gpu-recovery:agent_gpu_reset_instance_types": "",
    "gpu-recovery:agent_gpu_reset_services": "",
    "gpu-recovery:agent_gpu_events": "false",
    "gpu-recovery:policy": {},
    "gpu-recovery:ray_image": "111122223333.dkr.ecr.us-east-1.amazonaws.com/ray-runner@sha256:" + 64 * "8",
    "gpu-recovery:upgrade_from": "0.1",
    "gpu-recovery:console_url": "https://heal.example.com/console",
}
"""Images that the user has pushed, so that nothing is built, and a layer that the user has published.

The image of the check is that of releases before `build`. The deployment upgrades such a release.
"""

PLANTED = "planted"
"""Name of the set whose stacks get a planted mistake: `tests/infra/nag_run.py`."""
SETS: dict[str, dict[str, Any]] = {
    PLANTED: FORMER_NAME,
    "prod": PROD,
    "everything": EVERYTHING,
    "ray": RAY,
    "own_images": OWN_IMAGES,
}
"""The validated sets by name. PLANTED has the development profile."""
