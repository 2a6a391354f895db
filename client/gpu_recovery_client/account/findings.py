"""Findings of `gpu-recovery doctor`, and the settings of the deployment that the checks compare the account with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that would fail.

    check:    name of the check, as `--skip` takes it.
    subject:  the instance, group, role, queue and so on.
    sentence: what is wrong with it.
    why:      why it matters.
    command:  the command that fixes it, or the setting to change.
    is_note:  whether nothing fails by it: it may be the operator's choice.
    """

    check: str
    subject: str
    sentence: str
    why: str
    command: str
    is_note: bool = False


DEFAULTS: Mapping[str, Any] = {
    "cluster_name": "nwcd-gpu-testing",
    "training_task_families": ("gpu-training",),
    "training_role_arns": (),
    "node_role_arns": (),
    "training_log_groups": ("/ecs/gpu-training",),
    "api_auth": "token",
    "api_roles": {},
    "adopt": "off",
    "managed_tag_key": "gpu-recovery:managed",
    "managed_tag_value": "true",
    "preset": "adaptive",
    "policy": {},
    "replace": False,
    "tag_repairs": False,
    "record_attempts": True,
    "observe_only": False,
    "user_priority_max": "NORMAL",
    "job_id_prefix": "",
    "check_family": "gpu-health-check",
    "health_check_image": "build",
    "node_agent": "off",
    "build_agent_image": False,
    "check_level": 2,
    "check_reserves_gpus": True,
    "check_host_engine": "own",
    "xid_policy": "nvidia",
    "ray_dashboard": "",
    "ray_control_store": "",
    "ray_subnet_ids": (),
    "ray_security_group_ids": (),
    "console": "on",
    "console_url": "",
    "gpu_history": "on",
    "snap_start": False,
    "stack_name": "GpuRecovery",
    "function_name_prefix": "gpu-recovery-",
    "job_table_name": "ecs-job-sub",
    "instance_table_name": "ecs_container_instance",
    "event_history_table_name": "gpu-recovery-event-history",
    "topic_name": "gpu-training-notifications",
    "bus_name": "gpu-recovery",
    "chat_topic": False,
    "alert_emails": (),
    "alert_endpoints": (),
    "profile": "dev",
    "log_retention_days": 0,
    "log_level": "INFO",
    "reserved_concurrency": 0,
    "powertools_layer": "own",
}
"""Defaults of the settings that `init` and `doctor` read. A test compares them with the deployment's."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one deployment. `file` is the path of its settings file, or "" if the deployed functions named them.

    known: whether all settings are known. Otherwise only those of `values` are, and checks of others are left out.
    """

    values: Mapping[str, Any]
    file: str = ""
    known: bool = True
    target: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return a setting, or its default."""
        return self.values.get(name, DEFAULTS[name])

    def knows(self, name: str) -> bool:
        """Return whether the value of a setting is known."""
        return self.known or name in self.values

    def change(self, name: str, value: str, table: str = "") -> str:
        """Return the instruction that changes a setting: the file or context key, and the deployment after it.

        table: the table of the file that has the setting.
        """
        if self.file:
            stem = self.file.rsplit("/", 1)[-1].removesuffix(".toml")
            place = f"{self.file}, in the table [{table}]" if table else self.file
            return f"in {place}: {name} = {value}; then make deploy NAME={stem}"
        return f"set gpu-recovery:{name} to {value}, and deploy again"

    def change_threshold(self, name: str, value: int) -> str:
        """Return the instruction that changes a threshold of the recovery policy."""
        if self.file:
            return self.change(name, str(value), "policy")
        return self.change("policy", json.dumps({**self["policy"], name: value}))

    def add(self, name: str, value: str) -> str:
        """Return the instruction that adds an item to a setting that is a list."""
        items = [*self[name], value] if self.knows(name) else [value]
        return self.change(name, "[" + ", ".join(f'"{item}"' for item in items) + "]")
