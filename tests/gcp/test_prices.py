"""The price of a run: the table, and the sum."""

from __future__ import annotations

import pytest

from gcp import machines, prices, submit
from tests.gcp.scenarios import MACHINES, NETWORK, SCENARIOS, parse, submitted
from tests.helpers import REPOSITORY


def _estimate(*arguments: str) -> str:
    return submit.price(parse("atari", "vtrace", "16", "4", *arguments))


@pytest.mark.parametrize(
    ("machine", "dollars"),
    [
        # As Vertex AI's own list had them.
        ({"machineType": "n1-standard-4"}, 0.2185),
        ({"machineType": "a2-highgpu-1g"}, 4.224),
        (
            {
                "machineType": "n1-standard-16",
                "acceleratorType": "NVIDIA_TESLA_T4",
                "acceleratorCount": 2,
            },
            0.874 + 2 * 0.4025,
        ),
        ({"machineType": "z9-standard-4"}, None),
        ({"machineType": "n2-highmem-4"}, None),
    ],
)
def test_machines(machine: dict, dollars: float | None) -> None:
    assert prices.of_machine(machine) == (dollars and pytest.approx(dollars, rel=0.001))


def test_the_table_has_no_machines_that_do_not_exist() -> None:
    assert prices._WITH_GPUS.keys() <= machines._INCLUDED.keys()
    assert prices._GPU.keys() == machines._ATTACHED.keys()


def test_the_sum() -> None:
    text = _estimate(*MACHINES, "--days=2")
    learner = (8 * 0.0475 + 200 * 0.17 / 730) * 1.15
    actors = 2 * (8 * 0.0486 + 100 * 0.17 / 730) * 1.15
    total = learner + actors
    assert f"about ${total:.2f} an hour, ${total * 48:,.0f} until the limit" in text
    assert f"1 x n1-standard-8 ${learner:.2f}, 2 x n2-standard-8 ${actors:.2f}" in text
    assert "Spot" not in text and prices.AS_OF in text
    spot = _estimate(*MACHINES, "--days=2", "--spot=actors", NETWORK)
    assert f"${total:.2f} an hour" in spot and "Spot machines cost less" in spot


def test_evaluators_share_the_actors_machines() -> None:
    assert _estimate(*MACHINES, "--evaluators=3") == _estimate(*MACHINES)


def test_a_tuning_job_costs_its_trials() -> None:
    study = f"--study={REPOSITORY}/gcp/studies/atari_vtrace.json"
    options = ("--days=0.5", "--trials=10", "--parallel_trials=3")
    once, tuning, single = (
        _estimate(*MACHINES, *options, *more) for more in ((), (study,), (study, "--trials=1"))
    )

    def dollars(text: str) -> list[float]:
        return [float(part.split()[0].replace(",", "")) for part in text.split("$")[1:3]]

    assert dollars(tuning) == pytest.approx([3 * dollars(once)[0], 10 * dollars(once)[1]], rel=0.05)
    assert dollars(single) == dollars(once)  # No more trials at a time than there are.


def test_machines_without_a_price_are_named() -> None:
    text = _estimate("--learner_machine=n2-standard-8", "--actor_machine=n9-standard-8")
    assert "Not counted: n9-standard-8, which gcp/prices.py lacks." in text


def test_the_scenarios_have_prices() -> None:
    for jobs in map(submitted, SCENARIOS):
        assert "Not counted" not in prices.estimate(list(jobs.values()))
