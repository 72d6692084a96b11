-- Which router has begun with a task, while nothing of it is recorded yet: two routers that get the same task id at the
-- same moment must not both run it. The first claim counts; it goes when the life is accepted, so this table stays small.
CREATE TABLE claims (
    task_id TEXT    NOT NULL PRIMARY KEY,
    life    INTEGER NOT NULL,
    router  TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
