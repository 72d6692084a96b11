"""A stranger that locks the store's file: ``python -m reach_worker.chaos.store_holder FILE SECONDS``."""

import sqlite3
import sys
import threading
from contextlib import closing


def main(path: str, seconds: float) -> None:
    """Hold the write lock for so long."""
    with closing(sqlite3.connect(path, timeout=10.0, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        threading.Event().wait(seconds)
        connection.execute("ROLLBACK")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
