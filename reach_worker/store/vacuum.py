"""Giving the room that pruned rows left in the file back to the system."""

import asyncio
from pathlib import Path

from reach_worker.store.database import StoreBusy, connect, our_errors


async def vacuum(path: Path, busy_s: float) -> None:
    """Write the file anew without its gaps. Nobody else can write meanwhile, and it takes room for a second copy.

    Raises ``OutsideWorld``, ``StoreBusy`` where the store is locked or that room is not there; then nothing changed.
    """
    connection = await connect(path, busy_s)
    try:
        with our_errors(path):
            await connection.execute_fetchall("VACUUM")
            await connection.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
    except StoreBusy as error:
        raise StoreBusy(
            f"{error}; this takes the store for itself, and room for a second copy of it, there and in the folder of "
            "temporary files (SQLITE_TMPDIR)"
        ) from error
    finally:
        await asyncio.shield(connection.close())
