"""``reach check`` tells what can never happen, with the line it was written in; that is no trouble yet."""

from pathlib import Path

import pytest

from tests.cli.conftest import Call

ROUTING = """\
router:
  id: router-7
routing:
  preset: declared
  fallback:
    text.echo: [dear, deer]
  score_bonus:
    chaep: 0.1
retry:
  max_retries: 9
  max_dispatches: 4
"""


def test_what_can_never_happen_has_its_line(call: Call, config: Path) -> None:
    (config / "reach.yaml").write_text(ROUTING)
    cheap = config / "agents" / "cheap.yaml"
    cheap.write_text(cheap.read_text().replace("[secret]", "[texte]") + "    timeout_ms: 28800000\n")

    done = call("check")

    warnings = [line.removeprefix("warning: ") for line in done.stdout.splitlines()]
    assert done.exit_code == 0
    places = [warning.partition(": /")[0] for warning in warnings]
    assert places == [
        "config/reach.yaml:6:23",
        "config/reach.yaml:8:5",
        "config/reach.yaml:10:3",
        "config/agents/cheap.yaml:7:5",
        "config/agents/cheap.yaml:9:5",
    ]
    for warning, words in zip(
        warnings,
        (
            "/routing/fallback/text.echo/1: no manifest is of agent 'deer' (did you mean dear?)",
            "/routing/score_bonus/chaep: no manifest is of agent 'chaep' (did you mean cheap?)",
            "/retry/max_retries: never all come: a task ends after max_dispatches, 4",
            "/capabilities/0/tags: the tag 'text' is also in mutually_exclusive_tags",
            "/capabilities/0/timeout_ms: 4 attempts of 8 hours",
        ),
        strict=True,
    ):
        assert words in warning


@pytest.mark.usefixtures("config")
def test_a_variable_is_the_place_of_what_it_sets(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REACH_ROUTING__SCORE_BONUS", "{chaep: 0.1}")

    done = call("check")

    assert done.exit_code == 0
    assert (
        "REACH_ROUTING__SCORE_BONUS: /routing/score_bonus/chaep: no manifest is of agent 'chaep'"
        in done.stdout
    )
