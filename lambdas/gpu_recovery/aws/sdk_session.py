"""Session of the SDK that finds the model of a service without a look at the models of all services.

botocore checks the name of a service before it loads its model. For this it opens the folder of every service of AWS,
once for each of two kinds of models: 900 folders, which is a third of the time in which the first client is created.
"""

from __future__ import annotations

import os

import boto3
from botocore.loaders import Loader
from botocore.session import get_session


class ServiceLoader(Loader):  # type: ignore[misc, unused-ignore]
    """Loader of botocore's models. It takes each folder for a service, and does not look into the folder."""

    def list_available_services(self, type_name: str) -> list[str]:
        """Return the names of the services. A service without a model of the kind fails when the model is loaded."""
        folders = [path for path in self.search_paths if os.path.isdir(path)]
        return sorted({name for path in folders for name in os.listdir(path)})


def ensure_default_session() -> None:
    """Make the default session of boto3, unless there is one. `boto3.client` creates its clients from it."""
    if boto3.DEFAULT_SESSION is not None:
        return
    session = get_session()
    further = session.get_config_variable("data_path")
    session.register_component("data_loader", ServiceLoader(further.split(os.pathsep) if further else None))
    boto3.setup_default_session(botocore_session=session)
