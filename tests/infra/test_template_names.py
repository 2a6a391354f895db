"""The names in the templates of the default settings are those of `tests/stored_names.json`."""

import pytest

from tests.infra.deployment import Deployment
from tests.stored_names.golden import TEMPLATES, difference
from tests.stored_names.templates import template_names

pytestmark = pytest.mark.slow


def test_no_name_of_a_resource_has_changed(deployment: Deployment) -> None:
    """A logical id that changes is a resource that is replaced; a name that changes is one that others look for."""
    changed = difference(TEMPLATES, template_names(deployment.templates))
    assert not changed, f"\n{changed}"
