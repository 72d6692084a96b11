"""The command as people and programs call it."""

import json
import os
import subprocess
import sys
from dataclasses import fields

import pytest
from click.testing import CliRunner

from reach_worker.bench.contenders import LEFT_OUT, contender, known_contenders
from reach_worker.bench.figures import Figures
from reach_worker.bench.program import bench
from reach_worker.bench.stand_ins import STAND_INS
from reach_worker.core.policy import PRESETS

SMALL = ("routing", "--policies", "p2c,declared", "--fleets", "b", "--seeds", "2")


def call(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(bench, arguments)
    return done.exit_code, done.stdout, done.stderr


def test_every_preset_takes_part_but_those_that_cannot() -> None:
    assert set(known_contenders()) == (set(PRESETS) - set(LEFT_OUT)) | set(STAND_INS)
    assert all(callable(contender(name)) for name in known_contenders())


def test_the_last_line_is_one_object() -> None:
    status, out, _ = call(*SMALL, "--processes", "1", "--json")
    assert status == 0
    found = json.loads(out.splitlines()[-1])
    assert list(found) == ["p2c", "p2c+early", "declared", "declared+early"]
    for fleets in found.values():
        assert list(fleets) == ["B"]
        assert list(fleets["B"]) == [field.name for field in fields(Figures)]
        assert 0.5 < fleets["B"]["first"] <= fleets["B"]["final"] <= 1.0


@pytest.mark.system
def test_figures_do_not_depend_on_processes_or_hash_seeds() -> None:
    command = [sys.executable, "-m", "reach_worker.bench", *SMALL, "--json", "--processes"]
    outputs = {
        subprocess.run(
            [*command, processes],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for processes, hash_seed in (("1", "1"), ("2", "2"))
    }
    assert len(outputs) == 1


def test_the_table() -> None:
    status, out, err = call(
        "routing", "--policies", "random", "--fleets", "B,E", "--seeds", "1", "--processes", "1"
    )
    assert status == 0
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines[1:5]] == [
        ["B", "random"],
        ["B", "random+early"],
        ["E", "random"],
        ["E", "random+early"],
    ]
    assert "standard error" in out
    assert err.splitlines()[0].startswith("random in fleet B: ")


@pytest.mark.parametrize(("binding", "names"), [("late", ["random"]), ("early", ["random+early"])])
def test_one_binding(binding: str, names: list[str]) -> None:
    arguments = ("--policies", "random", "--fleets", "B", "--seeds", "1", "--processes", "1", "--json")
    _, out, _ = call("routing", "--binding", binding, *arguments)
    assert list(json.loads(out)) == names


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--fleets", "A,G"), "no fleet 'G', only A, B, C, D, E, F"),
        (("--policies", "adaptiv"), "no policy 'adaptiv'"),
        (("--policies", "semantic"), "semantic is left out"),
        (("--seeds", "0"), "x>=1"),
    ],
)
def test_what_it_does_not_know(arguments: tuple[str, ...], said: str) -> None:
    status, _, err = call("routing", *arguments)
    assert (status, said in " ".join(err.split())) == (2, True)
