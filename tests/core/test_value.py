import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path

import pytest

from reach_worker.core.value import value


@value(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    y: int = 0


def test_it_is_equal_hashed_and_shown_as_a_frozen_one() -> None:
    assert (Point(1), Point(1)) == (Point(1, 0), replace(Point(2), x=1))
    assert hash(Point(1)) == hash(Frozen(1))
    assert repr(Point(1)) == repr(Frozen(1)).replace("Frozen", "Point")
    with pytest.raises(AttributeError):
        Point(1).z = 1  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        Frozen(1).x = 2  # type: ignore[misc]


def test_the_type_checker_finds_who_changes_one(tmp_path: Path) -> None:
    module = tmp_path / "changes.py"
    module.write_text(
        "from reach_worker.core.slots import Lease\n\ndef f(a: Lease) -> None:\n    a.size = 1\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", "--follow-imports=silent", module],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'Property "size" defined in "Lease" is read-only' in done.stdout
