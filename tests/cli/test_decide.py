"""``reach decide``: one decision without a broker."""

from pathlib import Path

import orjson
import pytest

from tests.cli.conftest import Call

pytestmark = pytest.mark.usefixtures("config")

GOOD = '{"text": "x"}'


def test_the_cheaper_agent_gets_it(call: Call) -> None:
    done = call("decide", "Text.Echo", GOOD)

    assert done.exit_code == 0
    assert done.stdout.splitlines()[1] == "  decision: cheap (score 0.900, margin 0.263) · policy declared"
    assert "    ✓ cheap: score 0.900, chosen" in done.stdout
    assert "      cost     0.250 × 0.35 = 0.087  (raw 4)" in done.stdout
    assert "      success  0.500 × 0.20 = 0.100  (nothing known)" in done.stdout


def test_json_is_the_decision_as_the_reach_log_has_it(call: Call) -> None:
    decision = orjson.loads(call("decide", "text.echo", GOOD, "--json").stdout)

    assert (decision["verdict"], decision["agent"]) == ("chosen", "cheap")
    assert [candidate["agent"] for candidate in decision["candidates"]] == ["cheap", "dear"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["text.ecko", GOOD],
            "unmatched, no known agent has the capability 'text.ecko', did you mean 'text.echo'?",
        ),
        (["text.echo", '{"txt": 1}'], "payload refused"),
        (["text.echo", GOOD, "--requires", "vision"], "gate capability: missing vision"),
        (["text.echo", GOOD, "--requires", "Secret"], "gate tags: never handles secret"),
        (["text.echo", GOOD, "--domain", "finance"], "gate domain: not allowed in domain finance"),
    ],
)
def test_nobody_gets_it(call: Call, arguments: list[str], words: str) -> None:
    done = call("decide", *arguments)

    assert done.exit_code == 1
    assert words in done.stdout


def test_tags_are_read_by_the_table_of_synonyms(call: Call) -> None:
    assert call("decide", "text.echo", GOOD, "--requires", "TEXTE").exit_code == 0


def test_a_person_chooses_the_agent(call: Call) -> None:
    done = call("decide", "text.echo", GOOD, "--to", "Dear")

    assert "decision: dear (score" in done.stdout
    assert "gate sent_to: a person sent it to dear" in done.stdout


FLEET = {
    "{cheap: {breaker: open, open_for_s: 41}}": "gate breaker: breaker open for 41 s more",
    "{cheap: {presence: suspect}}": "gate presence: suspect, silent for 0 s",
    "{cheap: {presence: dead}}": "gate presence: dead, silent for 0 s",
    "{cheap: {presence: pending}}": "gate presence: ",
    "{cheap: {instances: 0}}": "gate presence: ",
    "{cheap: {held: 1}}": "gate slots: at max concurrency 1/1",
}


@pytest.mark.parametrize(("agents", "words"), FLEET.items(), ids=FLEET)
def test_a_fleet_in_a_certain_state(call: Call, config: Path, agents: str, words: str) -> None:
    (config.parent / "fleet.yaml").write_text(f"agents: {agents}\n")

    done = call("decide", "text.echo", GOOD, "--fleet", "fleet.yaml")

    assert done.exit_code == 0
    assert "decision: dear (score" in done.stdout
    assert words in done.stdout


def test_success_rates_and_slots_count(call: Call, config: Path) -> None:
    (config.parent / "fleet.yaml").write_text(
        "agents:\n  CHEAP: {success: {text.echo: 0.25}, instances: 2, held: 1}\n  dear: {breaker: half_open}\n"
    )

    done = call("decide", "text.echo", GOOD, "--fleet", "fleet.yaml")

    assert "      success  0.250 × 0.20 = 0.050  (raw 0.25)" in done.stdout
    assert "      load     0.500 × 0.10 = 0.050  (raw 1)" in done.stdout
    assert "    · dear: score" in done.stdout


def test_a_wrong_fleet_file_is_named_with_its_place(call: Call, config: Path) -> None:
    (config.parent / "fleet.yaml").write_text(
        "agents:\n  cheep: {}\n  dear: {held: -1, breaker: closd, success: {text.ecko: 1}}\n"
    )
    wrong = call("decide", "text.echo", GOOD, "--fleet", "fleet.yaml")
    (config.parent / "fleet.yaml").write_text("agents:\n  cheep: {}\n  dear: {success: {text.ecko: 1}}\n")
    strange = call("decide", "text.echo", GOOD, "--fleet", "fleet.yaml")
    missing = call("decide", "text.echo", GOOD, "--fleet", "nothing.yaml")

    assert (wrong.exit_code, strange.exit_code, missing.exit_code) == (2, 2, 2)
    assert "fleet.yaml:3:10: /agents/dear/held: must be at least 0, not -1" in wrong.stderr
    assert "/agents/dear/breaker: must be 'closed', 'open' or 'half_open', not 'closd'" in wrong.stderr
    assert (
        "fleet.yaml:2:3: /agents/cheep: no manifest is of agent 'cheep' (did you mean cheap?)"
        in strange.stderr
    )
    assert "dear has no capability 'text.ecko' (did you mean text.echo?)" in strange.stderr
    assert "nothing.yaml: cannot be read" in missing.stderr


def test_a_task_that_is_none_is_wrong_usage(call: Call) -> None:
    assert call("decide", "", GOOD).exit_code == 2
