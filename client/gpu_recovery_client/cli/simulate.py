"""`gpu-recovery simulate`: the simulator of the repository, imported when it is called."""

from __future__ import annotations

from importlib import import_module

import typer

from gpu_recovery_client.errors import ClientError

PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""Settings of click that pass every argument on to the simulator."""


def simulate(context: typer.Context) -> None:
    """Run the product under a virtual clock. The verbs are run, play, explore and goodput; each has --help."""
    try:
        simulator = import_module("simulator.__main__")
    except ModuleNotFoundError as error:
        raise ClientError(f"the simulator runs from the repository, after `make setup` ({error})") from error
    raise typer.Exit(simulator.main(context.args, "gpu-recovery simulate"))
