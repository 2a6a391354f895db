"""The table of facts: what is in it adds up, and what is wrong with it is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_recovery.core.job.spec import NNODES_MAX

from simulator.goodput.assumptions import AssumptionsInvalid, Mark
from simulator.goodput.assumptions_file import TABLE, read

FACTS = read()


def _altered(folder: Path, alter: Callable[[str], str]) -> Path:
    path = folder / "assumptions.toml"
    path.write_text(alter(TABLE.read_text()))
    return path


def test_every_number_says_where_it_is_from() -> None:
    """A figure without a source is an opinion."""
    assert len(FACTS.facts) > 60
    for fact in FACTS.facts.values():
        assert fact.unit.strip(), fact.name
        assert len(fact.source) > 10, fact.name


def test_every_assumption_has_a_range_that_is_swept() -> None:
    """Whoever doubts it can see what follows if it is otherwise."""
    assumed = [fact for fact in FACTS.facts.values() if fact.mark is Mark.ASSUMPTION]
    assert assumed
    assert all(fact.low is not None and fact.high is not None and fact.low < fact.high for fact in assumed)


def test_the_causes_of_llama_3_are_the_419_of_its_paper() -> None:
    """Table 5 is copied whole, and its rate is the one that is computed from it."""
    profile = FACTS.profile("llama3")
    assert sum(cause.weight for cause in profile.mix) == 419
    assert profile.rate == pytest.approx(419 / (54 * 2.048), abs=0.001)
    assert round(profile.failures_per_s * profile.seconds) == 419


def test_the_product_takes_jobs_of_the_size_of_each_profile() -> None:
    """It once took none of more than 2,000 instances."""
    assert all(profile.instances <= NNODES_MAX for profile in FACTS.profiles.values())


def test_derived_numbers_follow_from_their_sources() -> None:
    """What the table calls derived can be computed again from what it names."""
    conditions = FACTS.conditions
    assert FACTS.profile("small").rate == pytest.approx(21 / (73 * 0.063), abs=0.001)
    assert conditions.hang_share == pytest.approx(5_948 / 44_184, abs=0.001)
    assert conditions.rejoin(16_384) == pytest.approx(200, abs=1)
    assert conditions.rejoin(98_304) == pytest.approx(900, abs=2)
    mean_over_median = 68 / 40
    assert 2.718281828 ** (conditions.human_spread**2 / 2) == pytest.approx(mean_over_median, abs=0.01)


@pytest.mark.parametrize(
    ("alter", "says"),
    [
        (lambda text: text.replace('mark = "documented"', 'mark = "certain"', 1), "mark must be one of"),
        (lambda text: text.replace("[conditions.hang_s]", "[conditions.hung_s]"), "conditions.hang_s is missing"),
        (lambda text: text + "\n[conditions.luck]\nvalue = 1\n", "conditions.luck is read by nothing"),
        (lambda text: text.replace("value = 600\nunit", "value = -1\nunit", 1), "conditions.relapse_s: value must be"),
        (lambda text: text.replace("value = 600\nunit", "value = 9999\nunit", 1), "is not between 60 and 7200"),
        (lambda text: text.replace("low = 60\nhigh = 7200\n", ""), "relapse_s is an assumption without a range"),
        (lambda text: text.replace('cure = "node"', 'cure = "prayer"', 1), "mixes.llama3.faulty_gpu: cure must be"),
        (lambda text: text.replace('mix = "lablup"', 'mix = "none"'), "profiles.small: there is no mix 'none'"),
        (lambda text: text.replace("value = 54\n", "value = 0\n", 1), "profiles.llama3.days must be more than 0"),
        (lambda text: text.replace("low = 60\nhigh = 7200\n", "low = 60\n"), "one end of a range"),
        (lambda text: text.replace("value = 54\n", "valeu = 54\n", 1), "profiles.llama3.days has no value"),
        (lambda text: text.replace("[tuned.hang_s]", "[tuned.luck]"), "tuned.luck: there is no such condition"),
        (lambda text: text.replace('by = "AWS Support"', "", 1), "tuned.calls_per_s: by must be a text"),
        (lambda text: text.replace('by = "AWS', 'per = "AWS', 1), "tuned.calls_per_s has an entry 'per'"),
        (lambda text: text + "\n[conditions", "is no TOML"),
        (lambda text: text.replace("[profiles", "[runs"), "no section 'profiles'"),
    ],
)
def test_a_wrong_table_is_refused_by_the_name_of_what_is_wrong(
    tmp_path: Path, alter: Callable[[str], str], says: str
) -> None:
    """A slip in a number must not become a result."""
    with pytest.raises(AssumptionsInvalid, match=says):
        read(_altered(tmp_path, alter))


def test_another_table_has_another_digest(tmp_path: Path) -> None:
    """Two reports can be told apart by the facts that they stand on."""
    other = read(_altered(tmp_path, lambda text: text.replace("value = 54\n", "value = 55\n", 1)))
    assert other.digest != FACTS.digest == read().digest


def test_what_is_tuned_is_better_than_what_is_so() -> None:
    """Else it would not be worth anybody's while; whose that is, is said."""
    tuned, given = FACTS.tuned_conditions(), FACTS.conditions
    shorter = ("hang_s", "checkpoint_s", "stall_s", "persist_s", "rejoin_per_gpu_s")
    assert all(getattr(tuned, name) < getattr(given, name) for name in shorter)
    assert (tuned.calls_per_s, tuned.calls_burst) > (given.calls_per_s, given.calls_burst)
    assert {one.by for one in FACTS.tuned.values()} == {"the trainer", "AWS Support"}
    same = {name: getattr(given, name) for name in FACTS.tuned}
    assert replace(tuned, **same) == given


def test_an_unknown_profile_is_refused_with_those_there_are() -> None:
    """The reader learns what they could have said."""
    with pytest.raises(AssumptionsInvalid, match="llama3, rsc1, small"):
        FACTS.profile("gpt")
