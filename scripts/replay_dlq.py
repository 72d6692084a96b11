#!/usr/bin/env python3
"""Replays dead letters: `reach dlq replay` for people who do not know the command `reach`."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv/bin/python"


def main() -> None:
    """Run the replay, with the checkout's own Python where this one does not have what it takes."""
    sys.path.insert(0, str(ROOT))
    try:
        from reach_worker.cli.replay_script import replay_script  # noqa: PLC0415 - it may not be there
    except ModuleNotFoundError as error:
        if not VENV.exists() or Path(sys.prefix) == VENV.parents[1]:
            sys.exit(f"replay_dlq.py: {error}; run scripts/setup first")
        os.execv(VENV, [str(VENV), __file__, *sys.argv[1:]])  # noqa: S606 - no shell is wanted
    replay_script(prog_name="replay_dlq.py")


if __name__ == "__main__":
    main()
