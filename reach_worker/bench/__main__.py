"""``python -m reach_worker.bench`` is ``scripts/bench``."""

from reach_worker.bench.program import main

if __name__ == "__main__":
    main()
