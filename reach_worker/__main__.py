"""``python -m reach_worker`` is ``reach``."""

from reach_worker.cli.program import main

if __name__ == "__main__":
    main()
