"""A class name means one thing; where two modules have the same one, it is here why."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "interlock"

COLOURS = {  # the same thing for threads and for tasks
    "Ends": {"locks.aio.grants", "locks.sync.grants"},
    "Session": {"locks.aio.session", "locks.sync.session"},
    "TransactionConnection": {"optimistic.redis.tasks", "optimistic.redis.threads"},
}
ROOMS = {  # the same part of several rooms, each of which has its own
    "AsyncConnection": {"_redis.aconnection", "stores.postgresql.aconnection"},
    "AsyncPool": {"_redis.apool", "stores.postgresql.apool"},
    "Connection": {"_redis.connection", "stores.files.opened", "stores.mysql.connection", "stores.postgresql.pool"},
    "Conflict": {"django.guarded.errors", "optimistic.errors"},
    "EngineFactory": {"stores.mysql.factory", "stores.postgresql.engines"},
    "Fenced": {"django.fenced", "sql"},
    "Options": {
        "stores.advisory.options", "stores.mysql.factory", "stores.postgresql.options", "stores.sqlite.options",
    },
    "Passing": {"_redis.errors", "stores.sql.problems"},
    "Pool": {"_redis.pool", "django.pool", "stores.mysql.connection", "stores.postgresql.pool"},
    "Refused": {"_redis.errors", "stores.sql.problems"},
    "Script": {"_redis.scripts", "keylock.commands"},
    "StaleFence": {"django.fenced", "sql"},
    "Statement": {"django.statements", "stores.sql.statements"},
    "Tries": {"keylock.tries", "optimistic.tries"},
    "Unreachable": {"_redis.message", "stores.sql.problems"},
    "UrlFactory": {"stores.mysql.factory", "stores.postgresql.factory"},
    "_Listening": {"stores.postgresql.alistener", "stores.redis.asubscription"},
    "_Row": {"stores.sqlite.line", "testing.register"},
    "_Server": {"stores.mysql.store", "stores.sqlite.store"},
    "_Waiter": {"_redis.limit", "django.waiters"},
}  # fmt: skip
GIVEN = {  # named by Django, or by what they are in a database or a report
    "Claim": {"core.claims", "django.models"},
    "Command": {"django.management.commands.interlock", "keylock.server", "optimistic.redis.libraries"},
    "Migration": {"django.migrations.0001_claims", "django.migrations.0002_folded"},
    "Verdict": {"core.pending", "testing.torture.judge"},
}


def defined() -> dict[str, set[str]]:
    """Return in which modules each class at the top of one is defined."""
    found = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].add(module)
    return found


def test_a_class_name_that_two_modules_have_is_known() -> None:
    found = {name: modules for name, modules in defined().items() if len(modules) > 1}
    assert found == COLOURS | ROOMS | GIVEN
