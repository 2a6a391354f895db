"""cfn-lint reads the templates by the resource schemas of each region.

A kind of resource that a region lacks fails there, and a property that its schema lacks. The schema of functions is
the same in every region, so what Lambda lacks is asserted in `test_china.py` and `test_functions.py`.
"""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.infra.contexts import PLANTED
from tests.tiers import sampled

pytestmark = pytest.mark.slow

OF_THE_CDK = ("W3005", "W6001", "E2530")
"""Findings about what the CDK writes: a dependency that is stated twice, an output of an imported value, and SnapStart.

cfn-lint does not evaluate the condition under which SnapStart is left out. Another test does.
"""
BY_PARTITION = ("us-east-1", "cn-north-1", "cn-northwest-1", "us-gov-east-1", "us-gov-west-1")
"""For every set of settings: one commercial region, and each region of China and of GovCloud."""
SPEC = find_spec("cfnlint")
"""Where cfn-lint lies. Its import at collection would cost every worker 60 MB."""
assert SPEC is not None and SPEC.origin is not None
SCHEMAS = {
    path.name.removesuffix(".json"): path
    for path in sorted(Path(SPEC.origin).parent.glob("data/schemas/providers/*"))
    if re.fullmatch(r"[a-z]{2}-(gov-)?[a-z]+-\d\.json", path.name)
}
"""The schema ids of each region that cfn-lint knows, without the regions of isolated partitions."""
OTHERS = [region for region in SCHEMAS if region not in BY_PARTITION]
"""The other regions."""
WITHOUT_CODEBUILD = {"ap-east-2", "ca-west-1", "mx-central-1"}
"""Regions without CodeBuild, where the images must be given: docs/deploy.md names them."""


def lint(templates: list[Path], *regions: str) -> list[str]:
    """What cfn-lint finds in the templates: rule, path and message of each finding."""
    command = [
        sys.executable,
        "-c",
        "from cfnlint.runner import main; main()",
        "--format",
        "json",
        "--ignore-checks",
        *OF_THE_CDK,
    ]
    result = subprocess.run(
        [*command, "--regions", *regions, "--", *map(str, templates)], capture_output=True, text=True, check=False
    )
    assert not result.stderr, result.stderr
    return [f"{each['Rule']['Id']} {each['Location']['Path']}: {each['Message']}" for each in json.loads(result.stdout)]


@pytest.mark.parametrize(
    "settings", ["everything", *(pytest.param(name, marks=pytest.mark.full) for name in ("prod", "ray"))]
)
def test_the_templates_are_valid_in_every_partition(validated: dict[str, Path], settings: str) -> None:
    """Commercial regions, China and GovCloud, with every optional part."""
    assert lint(sorted(validated[settings].glob("*.template.json")), *BY_PARTITION) == []


@pytest.mark.parametrize("region", sampled(OTHERS, default=0))
def test_the_templates_are_valid_in_every_region(assembly: Path, region: str) -> None:
    """The default settings, by the schemas of the region."""
    found = lint(sorted(assembly.glob("*.template.json")), region)
    without = [finding for finding in found if "AWS::CodeBuild::Project' does not exist" in finding]
    assert bool(without) == (region in WITHOUT_CODEBUILD) and found == without


def test_the_schema_of_functions_is_the_same_everywhere() -> None:
    """Otherwise cfn-lint would find what Lambda lacks, and the tests that assert it by documents could be fewer."""
    ids = {json.loads(path.read_text())["AWS::Lambda::Function"] for path in SCHEMAS.values()}
    assert len(SCHEMAS) > 30 and len(ids) == 1


def test_an_unknown_property_is_found(validated: dict[str, Path]) -> None:
    """What is planted in one of the sets."""
    (template,) = validated[PLANTED].glob("GpuRecoveryState.template.json")
    (finding,) = lint([template], *BY_PARTITION)
    assert finding.startswith("E3002 ") and "'Unknown' was unexpected" in finding
