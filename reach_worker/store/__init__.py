"""The long-term store: what was decided and how it ended. Nothing outside this package knows SQL."""

from reach_worker.store.history import StoreReader
from reach_worker.store.memory import MemoryStore
from reach_worker.store.sqlite_store import SqliteStore

__all__ = ["MemoryStore", "SqliteStore", "StoreReader"]
