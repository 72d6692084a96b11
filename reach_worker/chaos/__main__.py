"""``python -m reach_worker.chaos`` is ``scripts/chaos``."""

from reach_worker.chaos.program import main

if __name__ == "__main__":
    main()
