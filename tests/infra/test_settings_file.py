"""Settings files: read at each deployment, below the context, and never for the wrong account or another deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.settings import DeploymentSettings
from infra.settings_error import DeploymentSettingsError
from infra.settings_file import settings_of

PROD = """\
region = "eu-central-1"
account = "111122223333"
cluster_name = "my-gpus"
adopt = "observe"
alert_emails = ["oncall@example.com"]

[policy]
attempts_max = 5
"""
LAB_NAMES = """\
stack_name = "GpuRecovery-lab"
function_name_prefix = "gpu-recovery-lab-"
check_family = "gpu-health-check-lab"
topic_name = "gpu-training-notifications-lab"
bus_name = "gpu-recovery-lab"
job_table_name = "ecs-job-sub-lab"
instance_table_name = "ecs_container_instance-lab"
event_history_table_name = "gpu-recovery-event-history-lab"
cluster_name = "lab-gpus"
"""
SELECTED = {"gpu-recovery:settings": "prod"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one settings file."""
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/prod.toml").write_text(PROD)
    return tmp_path


def read(root: Path, *, environment: dict[str, str] | None = None, **context: Any) -> DeploymentSettings:
    """The settings of the deployment `prod` under further context keys; nothing is replaced."""
    given = {f"gpu-recovery:{key}": value for key, value in context.items()}
    settings, replaced = settings_of({**SELECTED, **given}, root, environment or {})
    assert replaced == {}
    return settings


def refused(root: Path, *, environment: dict[str, str] | None = None, **context: Any) -> str:
    """The message with which the settings are refused."""
    with pytest.raises(DeploymentSettingsError) as caught:
        read(root, environment=environment, **context)
    return str(caught.value)


def test_a_refusal_has_each_setting_and_its_sentence_apart(root: Path) -> None:
    """A setting of the file is named as in the file, and a setting of the context with its key."""
    (root / "settings/prod.toml").write_text("check_level = 9\n" + PROD)
    with pytest.raises(DeploymentSettingsError) as caught:
        read(root, log_level="LOUD")
    assert [setting for setting, _ in caught.value.problems] == ["check_level", "log_level"]
    assert str(caught.value).splitlines() == [
        f"{name}: {sentence}"
        for name, (_, sentence) in zip(
            ("settings/prod.toml: check_level", "gpu-recovery:log_level"), caught.value.problems, strict=True
        )
    ]


def test_the_settings_are_those_of_the_file(root: Path) -> None:
    """Each deployment reads all of them again; the others keep their defaults."""
    settings = read(root)
    assert (settings.cluster_name, settings.adopt) == ("my-gpus", "observe")
    assert settings.alert_emails == ("oncall@example.com",) and settings.policy == {"attempts_max": 5}
    assert settings.preset == DeploymentSettings().preset


def test_without_a_file_the_context_alone_decides(root: Path) -> None:
    """As in releases without settings files, even if there are some."""
    assert settings_of({"gpu-recovery:adopt": "recover"}, root, {})[0] == DeploymentSettings(adopt="recover")


def test_a_value_of_the_context_wins_and_is_told(root: Path) -> None:
    """The next deployment without the option has the value of the file again."""
    given = {"gpu-recovery:adopt": "off", "gpu-recovery:alert_emails": "oncall@example.com"}
    settings, replaced = settings_of({**SELECTED, **given}, root, {})
    assert settings.adopt == "off"
    assert [*replaced] == ["replaced-setting:adopt"]
    (warning,) = replaced.values()
    assert "'off'" in warning and "'observe' of settings/prod.toml" in warning


def test_a_setting_that_only_the_context_has_is_added(root: Path) -> None:
    """It replaces nothing."""
    assert read(root, log_level="DEBUG").log_level == "DEBUG"


def test_an_unknown_key_is_refused_with_the_key_that_was_meant(root: Path) -> None:
    """In the file and in the context. A misspelt key would leave its setting at the default."""
    path = root / "settings/prod.toml"
    path.write_text('clustr_name = "a"\n"gpu-recovery:adpot" = "off"\nzzz = 1\n')
    assert refused(root).splitlines() == [
        "settings/prod.toml: clustr_name: there is no such setting; did you mean cluster_name?",
        "settings/prod.toml: gpu-recovery:adpot: there is no such setting; did you mean adopt?",
        "settings/prod.toml: zzz: there is no such setting",
    ]
    path.write_text(PROD)
    expected = "gpu-recovery:log_levl: there is no such setting; did you mean log_level?"
    assert refused(root, log_levl="DEBUG") == expected


def test_a_wrong_value_is_named_where_it_stands(root: Path) -> None:
    """In the file, or in the context that replaces it."""
    assert refused(root, adopt="maybe").startswith("gpu-recovery:adopt: 'maybe'")
    (root / "settings/prod.toml").write_text('adopt = "maybe"\n')
    assert refused(root).startswith("settings/prod.toml: adopt: 'maybe'")


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"CDK_DEFAULT_ACCOUNT": "444455556666"}, "account: the file is for 111122223333"),
        ({"CDK_DEFAULT_REGION": "us-east-1"}, "export AWS_REGION=eu-central-1"),
    ],
)
def test_credentials_of_another_account_or_region_are_refused(
    root: Path, environment: dict[str, str], said: str
) -> None:
    """The deployment would be made a second time, beside the first."""
    assert said in refused(root, environment=environment)
    read(root, environment={"CDK_DEFAULT_ACCOUNT": "111122223333", "CDK_DEFAULT_REGION": "eu-central-1"})


def test_a_copied_file_is_refused_until_its_names_differ(root: Path) -> None:
    """Two deployments with one stack name would replace each other; two on one cluster would act on the same tasks."""
    lab = root / "settings/lab.toml"
    lab.write_text(PROD)
    shared = refused(root)
    for name in ("stack_name", "job_table_name", "check_family", "cluster_name"):
        assert f"settings/prod.toml: {name}: " in shared
    assert "is also in settings/lab.toml" in shared
    lab.write_text(PROD.replace('cluster_name = "my-gpus"\n', LAB_NAMES))
    read(root)
    lab.write_text(PROD.replace("eu-central-1", "us-east-1"))
    read(root)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lab", "there is no settings/lab.toml (deployments: prod). Write it: gpu-recovery init lab"),
        ("../etc", "is neither the name of a deployment"),
    ],
)
def test_a_missing_file_is_named_with_the_command_that_writes_it(root: Path, name: str, said: str) -> None:
    """A misspelt name must not deploy the defaults."""
    assert said in refused(root, settings=name)


def test_a_file_may_be_named_by_its_path(root: Path) -> None:
    """For files outside the repository."""
    (root / "other.toml").write_text('region = "us-east-1"\ncluster_name = "others"\n')
    assert read(root, settings=str(root / "other.toml")).cluster_name == "others"


def test_a_file_that_is_no_toml_is_refused(root: Path) -> None:
    """With the place that the parser names."""
    (root / "settings/prod.toml").write_text("adopt = observe\n")
    assert refused(root).startswith("settings/prod.toml: cannot be read as TOML: ")
