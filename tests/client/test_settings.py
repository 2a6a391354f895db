"""Where the API address and the token come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client import SettingsMissing
from gpu_recovery_client.settings import ClientSettings, find_settings

BOTH = {"GPU_RECOVERY_API_URL": "https://env.test", "GPU_RECOVERY_TOKEN": "env-token"}
REACH = {"api_url": "http://127.0.0.1:4566/_aws/execute-api/abc/$default", "operator_token": "sandbox-token"}


def sandbox_in(folder: Path, state: Any) -> Path:
    """A sandbox's state file in `folder`."""
    path = folder / ".sandbox" / "state.json"
    path.parent.mkdir(parents=True)
    path.write_text(state if isinstance(state, str) else json.dumps(state))
    return path


def test_an_option_wins_over_its_variable(tmp_path: Path) -> None:
    """Each option replaces its own variable only."""
    found = find_settings("https://option.test", None, BOTH, tmp_path)
    assert (found.api_url, found.token) == ("https://option.test", "env-token")
    found = find_settings(None, "option-token", BOTH, tmp_path)
    assert (found.api_url, found.token) == ("https://env.test", "option-token")


@pytest.mark.parametrize("state", [{"sandbox": REACH, "outputs": {}}, REACH])
def test_a_sandbox_in_a_parent_is_found_when_nothing_is_given(tmp_path: Path, state: Any) -> None:
    """The nearest state file counts."""
    path = sandbox_in(tmp_path, state)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_settings(None, None, {}, below) == ClientSettings(REACH["api_url"], "sandbox-token", str(path))


def test_the_environment_wins_over_a_sandbox(tmp_path: Path) -> None:
    """A sandbox that happens to run changes nothing for who has named a deployment."""
    sandbox_in(tmp_path, {"sandbox": REACH})
    assert find_settings(None, None, BOTH, tmp_path).api_url == "https://env.test"


def test_half_of_the_settings_is_never_completed_from_a_sandbox(tmp_path: Path) -> None:
    """A deployment's token must not go to the sandbox, nor the sandbox's to a deployment."""
    sandbox_in(tmp_path, {"sandbox": REACH})
    with pytest.raises(
        SettingsMissing,
        match=r"no token for the API address https://option\.test: set GPU_RECOVERY_TOKEN or give --token",
    ):
        find_settings("https://option.test", None, {}, tmp_path)
    with pytest.raises(
        SettingsMissing,
        match=r"no API address for the given token: .* or give --api-url; the sandbox of .*state\.json is not used",
    ):
        find_settings(None, None, {"GPU_RECOVERY_TOKEN": "env-token"}, tmp_path)


def test_nothing_at_all_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    """Both ways out are named."""
    with pytest.raises(SettingsMissing, match=r"GPU_RECOVERY_API_URL.*gpu-recovery sandbox up"):
        find_settings(None, None, {}, tmp_path)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ('{"operator_token": "half', "cannot be read as JSON"),
        ([], "does not hold a sandbox's state"),
        ({"sandbox": None}, "does not hold a sandbox's state"),
        ({"sandbox": {"api_url": REACH["api_url"]}}, "has no operator_token"),
        ({"sandbox": REACH | {"api_url": "https://elsewhere.test"}}, "not on this machine"),
    ],
)
def test_a_state_file_that_cannot_be_right_is_refused(tmp_path: Path, state: Any, text: str) -> None:
    """A broken or planted file is named, and its token is not shown."""
    path = sandbox_in(tmp_path, state)
    with pytest.raises(SettingsMissing, match=text) as caught:
        find_settings(None, None, {}, tmp_path)
    assert str(path) in str(caught.value)
    assert "sandbox-token" not in str(caught.value)


def test_the_token_is_not_in_the_settings_repr() -> None:
    """Settings may be printed."""
    assert "secret" not in repr(ClientSettings("https://a.test", "secret", "options"))
