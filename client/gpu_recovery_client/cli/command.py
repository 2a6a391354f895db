"""Commands of typer with what every verb has: the option -o, help in the user's language, modules loaded when needed.

Importing all verbs takes half a second of processor time, so a verb is imported when its name is typed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from gpu_recovery_client.cli.help_text import HelpText
from gpu_recovery_client.cli.options import examples
from gpu_recovery_client.cli.output import DOCUMENTS, Format, OutputFormat, no_names, use_format

PACKAGE = "gpu_recovery_client.cli"
FORMAT = "gpu_recovery.format"
"""Key of the context under which the format is stored. A group and its verbs share it: `fleet --json pause`."""
WITH_NAMES = {
    *("submit", "status", "list", "explain", "queue", "cancel", "suspend", "resume"),
    *("instances", "quarantine", "release", "token list", "token revoke"),
}
"""Commands that print jobs, instances or tokens, so that -o name can print their ids. It would hide the secret of
`token issue`.
"""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb, without its module.

    name:     name of the verb.
    module:   module of the verb, below PACKAGE.
    function: its function, or its Typer application with further verbs.
    summary:  the first sentence of its help.
    examples: lines of its help.
    command:  class of its command in the module, "" for VerbCommand.
    settings: settings of the command in the module, "" for none.
    """

    name: str
    module: str
    function: str
    summary: str
    examples: tuple[str, ...] = ()
    command: str = ""
    settings: str = ""

    def load(self) -> Any:
        """Import the module and return the command."""
        module = import_module(f"{PACKAGE}.{self.module}")
        found = getattr(module, self.function)
        if isinstance(found, typer.Typer):
            app = found
            app.info.cls = VerbGroup
            for info in app.registered_commands:
                info.cls = VerbCommand if info.cls in (None, TyperCommand) else info.cls
        else:
            app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
            app.command(
                self.name,
                epilog=examples(*self.examples),
                short_help=self.summary,
                cls=getattr(module, self.command) if self.command else VerbCommand,
                context_settings=getattr(module, self.settings) if self.settings else None,
            )(found)
        app._add_completion = False
        command: Any = typer.main.get_command(app)
        command.name, command.short_help = self.name, self.summary
        return command


class LoadedWhenNeeded(MutableMapping[str, Any]):
    """Commands by name. A command is loaded when it is read for the first time."""

    def __init__(self, verbs: Mapping[str, Verb]) -> None:
        self.verbs = verbs
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self.verbs[name].load()
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.verbs)

    def __len__(self) -> int:
        return len(self.verbs)

    def __contains__(self, name: object) -> bool:
        return name in self.verbs


def _format_option() -> Any:
    def holder(output: OutputFormat = None) -> None:
        """Carry the option."""

    app = typer.Typer(add_completion=False)
    app.command()(holder)
    return typer.main.get_command(app).params[0]


def _with_format_option(params: list[Any]) -> None:
    """Add -o after --json. A command without --json prints no document and gets no -o."""
    at = next((number for number, param in enumerate(params) if param.name == "as_json"), None)
    if at is not None:
        params.insert(at + 1, _format_option())


def _choose_format(context: Any) -> None:
    """Set the format of the output by -o or --json of this command, or else by those of its group.

    Raises:
        typer.BadParameter: the format does not fit the command, which has sent no request yet.
    """
    if "as_json" not in context.params:
        return
    output = context.params.pop("output", None)
    if output is not None and context.params["as_json"] and Format(output) is not Format.JSON:
        raise typer.BadParameter("give either --json or -o", param_hint="--output")
    chosen = Format(output) if output is not None else Format.JSON if context.params["as_json"] else None
    chosen = chosen or context.meta.get(FORMAT)
    if chosen is Format.NAME and _path(context) not in WITH_NAMES:
        raise no_names()
    context.meta[FORMAT] = chosen
    context.params["as_json"] = chosen in DOCUMENTS
    use_format(chosen)


def _path(context: Any) -> str:
    """Return the names of a command and its groups, without the program: `token list`."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return " ".join(names)


@dataclass(frozen=True, slots=True)
class Coercion:
    """Conversion of an option's text, by typer only where it changes a value: typer imports pydantic for it (0.1 s).

    param: the option.
    typer: returns the conversion of typer.
    """

    param: Any
    typer: Callable[[], Any]

    def coerce(self, value: Any, **context: Any) -> Any:
        """Return the value. A missing value, a default and a text that stays a text need no conversion."""
        is_text = isinstance(value, str) and self.param.type_descriptor.annotation is str
        if value is None or value is self.param.default or is_text:
            return value
        return self.typer().coerce(value, **context)


def coerced_when_needed(params: list[Any]) -> list[Any]:
    """Return the options of a command. They convert their values only where needed, and accept names in any case."""
    for param in params:
        if hasattr(param, "type_descriptor"):
            param.type_descriptor.parameter_info.case_sensitive = False
        if hasattr(param, "get_runtime_param") and "get_runtime_param" not in vars(param):
            coercion = Coercion(param, param.get_runtime_param)
            param.get_runtime_param = lambda coercion=coercion: coercion
    return params


if TYPE_CHECKING:
    _Command = TyperCommand
else:
    _Command = object


class WithHelp(_Command):
    """Options that convert when needed, -h, and the help in the language in use."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options, with -h."""
        return coerced_when_needed(super().get_params(ctx))

    def get_help(self, ctx: Any) -> str:
        """Return the help in the language in use."""
        ctx.formatter_class = HelpText
        return super().get_help(ctx)

    def get_usage(self, ctx: Any) -> str:
        """Return the line with the usage in the language in use."""
        ctx.formatter_class = HelpText
        return super().get_usage(ctx)


class _Verb(WithHelp):
    """What a verb and a group of verbs have in common: the choice of the output format."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        _with_format_option(self.params)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb, or the group and the verb that is named."""
        _choose_format(ctx)
        return super().invoke(ctx)


class VerbCommand(_Verb, TyperCommand):
    """A verb."""


class VerbGroup(_Verb, TyperGroup):
    """A verb with further verbs below it, such as `fleet pause`."""
