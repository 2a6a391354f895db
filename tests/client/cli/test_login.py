"""Named deployments: what `login` stores and where, which deployment a call reaches, and what `logout` leaves."""

from __future__ import annotations

import json
import stat
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from gpu_recovery_client.cli import app, confirmation
from gpu_recovery_client.errors import SettingsMissing
from gpu_recovery_client.settings import find_settings
from typer.testing import CliRunner, Result

from tests.client.conftest import TOKEN, FakeApi

URL = "https://api.example.test/prod"
Run = Callable[..., Result]


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the configuration; no keyring, and no variable names a deployment."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    folder = tmp_path / "settings"
    monkeypatch.setenv("GPU_RECOVERY_CONFIG", str(folder / "config.toml"))
    return folder


@pytest.fixture
def bare(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line without the variables of `run`."""
    monkeypatch.delenv("GPU_RECOVERY_API_URL")
    monkeypatch.delenv("GPU_RECOVERY_TOKEN")
    return run


class KeyringError(Exception):
    """Base class of the errors of a keyring."""


class PasswordDeleteError(KeyringError):
    """There is no such entry, or it cannot be removed."""


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch, config: Path) -> dict[tuple[str, str], str]:
    """A keyring in memory."""
    kept: dict[tuple[str, str], str] = {}
    module = types.ModuleType("keyring")
    module.get_password = lambda service, user: kept.get((service, user))  # type: ignore[attr-defined]
    module.set_password = lambda service, user, secret: kept.update({(service, user): secret})  # type: ignore[attr-defined]

    def delete(service: str, user: str) -> None:
        if kept.pop((service, user), None) is None:
            raise PasswordDeleteError

    module.delete_password = delete  # type: ignore[attr-defined]
    errors = types.SimpleNamespace(KeyringError=KeyringError, PasswordDeleteError=PasswordDeleteError)
    module.errors = errors  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", module)
    return kept


def test_a_login_is_checked_and_used_by_later_calls(bare: Run, api: FakeApi, config: Path) -> None:
    """The token comes from standard input; one request checks it; the next call needs no variables."""
    result = bare("login", "prod", "--api-url", URL, stdin=f"{TOKEN}\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Saved prod: https://api.example.test/prod. You are an operator (operator)." in result.stdout
    assert [one.url.path for one in api.requests] == ["/prod/api/v2/me"]
    assert bare("list").exit_code == 0
    assert api.requests[-1].headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in result.output


def test_without_a_keyring_only_the_owner_can_read_the_token(bare: Run, config: Path) -> None:
    """Mode 0600, in a folder of mode 0700; the configuration itself has no secret."""
    bare("login", "prod", "--api-url", URL, stdin=TOKEN)
    assert TOKEN in (config / "credentials.toml").read_text()
    assert TOKEN not in (config / "config.toml").read_text()
    for path, mode in ((config, 0o700), (config / "credentials.toml", 0o600), (config / "config.toml", 0o600)):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert sorted(path.name for path in config.iterdir()) == ["config.toml", "credentials.toml"]


def test_a_token_that_others_can_read_is_not_used(bare: Run, api: FakeApi, config: Path) -> None:
    """The command that mends the file is named."""
    bare("login", "prod", "--api-url", URL, stdin=TOKEN)
    (config / "credentials.toml").chmod(0o644)
    result = bare("list")
    assert (result.exit_code, len(api.requests)) == (2, 1)
    assert f"run `chmod 600 {config / 'credentials.toml'}`" in result.stderr


def test_a_keyring_keeps_the_token_where_there_is_one(
    bare: Run, api: FakeApi, config: Path, keyring: dict[tuple[str, str], str]
) -> None:
    """No file has it then; `logout` removes it."""
    assert "The token is in the keyring." in bare("login", "prod", "--api-url", URL, stdin=TOKEN).stdout
    assert list(keyring.values()) == [TOKEN]
    assert not (config / "credentials.toml").exists()
    assert bare("list").exit_code == 0
    assert bare("logout", "prod").exit_code == 0
    assert keyring == {}
    assert bare("list").exit_code == 2


@pytest.mark.parametrize("error", [RuntimeError, KeyringError])
def test_a_locked_keyring_is_replaced_by_the_file(
    bare: Run,
    config: Path,
    keyring: dict[tuple[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
) -> None:
    """As on a server without a desktop, where the package is installed and has no backend."""

    def refuse(*_: str) -> None:
        raise error("no backend")

    monkeypatch.setattr(sys.modules["keyring"], "set_password", refuse)
    assert bare("login", "prod", "--api-url", URL, stdin=TOKEN).exit_code == 0
    assert TOKEN in (config / "credentials.toml").read_text()


def test_a_keyring_that_stores_nothing_is_replaced_by_the_file(
    bare: Run, config: Path, keyring: dict[tuple[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the null backend, which reports no error."""
    monkeypatch.setattr(sys.modules["keyring"], "set_password", lambda *_: None)
    assert "The token is in the keyring." not in bare("login", "prod", "--api-url", URL, stdin=TOKEN).stdout
    assert bare("list").exit_code == 0


@pytest.mark.parametrize("error", [RuntimeError, KeyringError, PasswordDeleteError])
def test_logout_keeps_the_profile_while_its_token_stays_in_the_keyring(
    bare: Run,
    config: Path,
    keyring: dict[tuple[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
) -> None:
    """A locked keyring is an error, and the command can be repeated; some backends report it as a missing entry."""

    def refuse(*_: str) -> None:
        raise error("locked")

    bare("login", "prod", "--api-url", URL, stdin=TOKEN)
    with monkeypatch.context() as locked:
        locked.setattr(sys.modules["keyring"], "delete_password", refuse)
        result = bare("logout", "prod")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is still in the keyring" in result.stderr
    assert bare("list").exit_code == 0
    assert (bare("logout", "prod").exit_code, keyring) == (0, {})


def test_logout_of_a_token_that_is_gone_is_no_error(
    bare: Run, config: Path, keyring: dict[tuple[str, str], str]
) -> None:
    """The user may have removed it in the keyring's own program."""
    bare("login", "prod", "--api-url", URL, stdin=TOKEN)
    keyring.clear()
    assert bare("logout", "prod").stdout == "Removed prod.\n"


def test_logout_without_the_keyring_package_removes_the_profile_and_names_what_is_left(
    bare: Run, config: Path, keyring: dict[tuple[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package was uninstalled after the login. The other profiles and the tokens in the file stay."""
    bare("login", "prod", "--api-url", URL, stdin=TOKEN)
    monkeypatch.setitem(sys.modules, "keyring", None)
    bare("login", "lab", "--api-url", "https://lab.example.test/prod", stdin=TOKEN)
    shown = bare("--profile", "prod", "list").stderr
    assert "is in the keyring, and the Python package keyring is missing" in shown
    result = bare("logout", "prod")
    assert (result.exit_code, result.stdout) == (1, "Removed prod.\n")
    assert f"the token 'prod at {URL}' is still in the keyring" in result.stderr
    assert TOKEN in (config / "credentials.toml").read_text()
    assert [one["name"] for one in json.loads(bare("login", "--list", "--json").stdout)["profiles"]] == ["lab"]
    assert bare("logout", "lab").exit_code == 0
    assert TOKEN not in (config / "credentials.toml").read_text()


def test_the_list_of_logins_says_which_deployment_is_used_here(
    bare: Run, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No login is none; the variables win over a profile."""
    assert "used here: none" in bare("login", "--list").stdout
    monkeypatch.setenv("GPU_RECOVERY_API_URL", "https://env.example.test")
    monkeypatch.setenv("GPU_RECOVERY_TOKEN", TOKEN)
    used = json.loads(bare("login", "--list", "--json").stdout)["used"]
    assert used == {"api_url": "https://env.example.test", "source": "options and environment"}


def test_a_login_with_another_address_removes_the_former_token(
    bare: Run, config: Path, keyring: dict[tuple[str, str], str]
) -> None:
    """The keyring has one token for each profile."""
    bare("login", "prod", "--api-url", URL, stdin=TOKEN)
    bare("login", "prod", "--api-url", "https://lab.example.test/prod", stdin=TOKEN)
    assert list(keyring) == [("gpu-recovery", "prod at https://lab.example.test/prod")]
    bare("login", "prod", "--api-url", "https://lab.example.test/prod", stdin=TOKEN)
    assert len(keyring) == 1


def test_a_wrong_token_is_not_saved(bare: Run, config: Path) -> None:
    """The refusal of the API is the answer, and nothing is written."""
    result = bare("login", "prod", "--api-url", URL, stdin="wrong")
    assert result.exit_code == 1
    assert "Unauthorized (401)" in result.stderr
    assert not config.exists()


def test_a_profile_of_an_option_wins_over_the_variables(run: Run, api: FakeApi, config: Path) -> None:
    """What is typed for this call counts; the default profile counts only without variables."""
    run("--token", TOKEN, "login", "lab", "--api-url", "https://lab.example.test/prod")
    assert run("list").exit_code == 0
    assert api.requests[-1].url.host == "api.example.test"
    run("--profile", "lab", "list")
    assert api.requests[-1].url.host == "lab.example.test"
    result = run("--profile", "lab", "--api-url", URL, "list")
    assert result.exit_code == 2
    assert "leave --api-url, --token and --auth out" in result.stderr


def test_variables_win_over_the_profile_of_a_variable(bare: Run, config: Path, tmp_path: Path) -> None:
    """Scripts that set address and token reach that deployment, whatever the user has saved."""
    bare("login", "prod", "--api-url", URL, stdin=TOKEN)
    environment = {"GPU_RECOVERY_PROFILE": "prod", "GPU_RECOVERY_CONFIG": str(config / "config.toml")}
    assert find_settings(None, None, environment, tmp_path).api_url == URL
    named = {**environment, "GPU_RECOVERY_API_URL": "https://env.test", "GPU_RECOVERY_TOKEN": "t"}
    assert find_settings(None, None, named, tmp_path).api_url == "https://env.test"


def test_a_sandbox_here_wins_over_the_default_profile(bare: Run, config: Path, tmp_path: Path) -> None:
    """A tutorial must not reach a production deployment; a profile that is named does."""
    bare("login", "prod", "--api-url", URL, stdin=TOKEN)
    (tmp_path / ".sandbox").mkdir()
    state = {"sandbox": {"api_url": "http://127.0.0.1:4566", "operator_token": "sandbox-token"}}
    (tmp_path / ".sandbox" / "state.json").write_text(json.dumps(state))
    environment = {"GPU_RECOVERY_CONFIG": str(config / "config.toml")}
    assert find_settings(None, None, environment, tmp_path).token == "sandbox-token"
    assert find_settings(None, None, environment, tmp_path, profile="prod").api_url == URL


def test_an_edited_address_does_not_receive_the_token_of_another(bare: Run, api: FakeApi, config: Path) -> None:
    """The token is stored with its address."""
    bare("login", "prod", "--api-url", URL, stdin=TOKEN)
    path = config / "config.toml"
    path.write_text(path.read_text().replace(URL, "https://other.test"))
    result = bare("list")
    assert (result.exit_code, len(api.requests)) == (2, 1)
    assert "run `gpu-recovery login prod --api-url https://other.test`" in result.stderr


def test_the_first_login_is_the_default_until_another_is_made_so(bare: Run, config: Path) -> None:
    """`--list` marks it, and shows no token."""
    bare("login", "prod", "--api-url", URL, stdin=TOKEN)
    bare("login", "lab", "--api-url", "https://lab.example.test/prod", stdin=TOKEN)
    shown = bare("login", "--list")
    *rows, used = shown.stdout.splitlines()
    assert [line.split("  ")[0] for line in rows] == ["PROFILE", "lab", "prod *"]
    assert used == f"used here: {URL} (profile prod)"
    assert TOKEN not in shown.output
    bare("login", "lab", "--api-url", "https://lab.example.test/prod", "--default", stdin=TOKEN)
    listed = json.loads(bare("login", "--list", "--json").stdout)["profiles"]
    assert {one["name"]: one["default"] for one in listed} == {"lab": True, "prod": False}
    bare("logout", "lab")
    assert "no deployment is selected" in bare("list").stderr


def test_an_unknown_profile_names_those_that_there_are(bare: Run, config: Path) -> None:
    """2, and how to make it."""
    bare("login", "prod", "--api-url", URL, stdin=TOKEN)
    result = bare("--profile", "prdo", "list")
    assert result.exit_code == 2
    assert "there is no profile 'prdo' (profiles: prod); `gpu-recovery login prdo` makes it" in result.stderr
    assert bare("logout", "prdo").exit_code == 2


def test_a_login_without_an_address_asks_only_a_person(
    bare: Run, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a script it is a usage error; the token that a person types is not shown."""
    assert bare("login", "prod", stdin=TOKEN).exit_code == 2
    monkeypatch.setattr(confirmation, "is_interactive", lambda: True)
    monkeypatch.setattr("gpu_recovery_client.cli.login.is_interactive", lambda: True)
    result = bare("login", "prod", stdin=f"{URL}\n{TOKEN}\n")
    assert (result.exit_code, TOKEN in result.output) == (0, False)


def test_a_configuration_that_is_no_toml_is_a_usage_error(config: Path, tmp_path: Path) -> None:
    """The file is named."""
    config.mkdir()
    (config / "config.toml").write_text("default = ")
    with pytest.raises(SettingsMissing, match=r"config\.toml cannot be read as TOML"):
        find_settings(None, None, {"GPU_RECOVERY_CONFIG": str(config / "config.toml")}, tmp_path)


def test_a_deployment_that_signs_needs_no_token(config: Path, tmp_path: Path) -> None:
    """The profile says so."""
    config.mkdir()
    text = f'default = "lab"\n[profiles.lab]\napi_url = "{URL}"\nauth = "iam"\n'
    (config / "config.toml").write_text(text)
    found = find_settings(None, None, {"GPU_RECOVERY_CONFIG": str(config / "config.toml")}, tmp_path)
    assert (found.signs, found.token) == (True, "")


def test_version_is_that_of_the_package() -> None:
    """And of Python, for a report of a problem."""
    result = CliRunner().invoke(app.app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("gpu-recovery 0.") and "Python 3." in result.stdout
