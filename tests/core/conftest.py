"""What holds for the tests of the core: rules that tests share explain their failures as tests do."""

import pytest

pytest.register_assert_rewrite("tests.core.move_rules", "tests.core.property_runs")
