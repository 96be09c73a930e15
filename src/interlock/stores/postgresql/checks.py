"""doctor: is this database fit to keep locks?"""

import time
from typing import Any

from interlock.core.claims import SEPARATOR, Check
from interlock.core.effects import Ask, Op
from interlock.core.errors import LockError
from interlock.stores.sql.statements import MICROS, NOW, Statement, Texts

SKEW = 1.0  # seconds that two clocks may differ without a word
ROUNDS = 5
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
    times = []
    for _ in range(ROUNDS):
        sent = time.perf_counter()
        now = (yield Ask(server, Statement(f"SELECT {NOW}")))[0][0]
        times.append(time.perf_counter() - sent)
    skew = time.time() - int(now) / 1e6
    words = f"differs from this machine's by {skew * 1000:.0f} ms"
    if abs(skew) > SKEW:
        words += "; leases are judged by the server's clock alone, which must not jump: let NTP slew it"
    checks.append(Check("clock", "ok" if abs(skew) <= SKEW else "warn", words))
    checks.append(Check("server", "ok", f"answers in {min(times) * 1e6:.0f} us"))
    yield Ask(server, texts.look(SEPARATOR + "doctor"))
    yield Ask(server, texts.leave(SEPARATOR + "doctor", "nobody"))
    checks.append(Check("table", "ok", texts.table))
    left = int((yield Ask(server, texts.grace_left))[0][0] or 0)
    if left:
        seconds = left / MICROS
        checks.append(Check("grace", "warn", f"the server has crashed: locks are given out again in {seconds:.0f} s"))
    return checks
