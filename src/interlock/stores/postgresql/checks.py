"""doctor: is this database fit to keep locks?"""

from typing import Any

from interlock.core.claims import SEPARATOR, Check
from interlock.core.effects import Ask, Op
from interlock.core.errors import LockError
from interlock.stores.sql.checks import clock_and_answers
from interlock.stores.sql.statements import MICROS, NOW, Statement, Texts

ABOUT = Statement(
    "SELECT current_setting('server_version'), pg_is_in_recovery()::int, current_setting('fsync'), "
    "current_setting('full_page_writes'), current_setting('server_version_num')::int"
)
OLDEST = 140000


def examine(server: Any, texts: Texts) -> Op[list[Check]]:
    """Look at a server's version, role, durability, table, round trip and clock."""
    try:
        return (yield from _examine(server, texts))
    except LockError as error:
        return [Check("server", "fail", str(error))]


def _examine(server: Any, texts: Texts) -> Op[list[Check]]:
    checks = []
    version, replica, fsync, pages, number = (yield Ask(server, ABOUT))[0]
    if int(number) < OLDEST:
        checks.append(Check("version", "fail", f"PostgreSQL {version} is too old: 14 or newer"))
    else:
        checks.append(Check("version", "ok", f"PostgreSQL {version}"))
    if int(replica):
        checks.append(Check("role", "fail", "this is a replica, which can't write: connect to the primary"))
    if "off" in (fsync, pages):
        checks.append(
            Check(
                "persistence", "warn",
                f"fsync is {fsync}, full_page_writes {pages}: after a crash of the machine two may hold a lock",
            )
        )  # fmt: skip
    checks += yield from clock_and_answers(server, Statement(f"SELECT {NOW}"))
    yield Ask(server, texts.look(SEPARATOR + "doctor"))
    yield Ask(server, texts.leave(SEPARATOR + "doctor", "nobody"))
    checks.append(Check("table", "ok", texts.table))
    left = int((yield Ask(server, texts.grace_left))[0][0] or 0)
    if left:
        seconds = left / MICROS
        checks.append(Check("grace", "warn", f"the server has crashed: locks are given out again in {seconds:.0f} s"))
    return checks
