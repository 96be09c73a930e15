"""doctor: is this database fit to keep locks?"""

import time
from typing import Any

from interlock.core.claims import SEPARATOR, Check
from interlock.core.effects import Ask, Op
from interlock.core.errors import LockError
from interlock.stores.sql.mysql import NOW, Facts, MysqlTexts, Statements, Talk

SKEW = 1.0  # seconds that two clocks may differ without a word
ROUNDS = 5
ABOUT = "SELECT VERSION(), @@global.innodb_flush_log_at_trx_commit"
ENGINE = "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'"


def _only(statement: str) -> Statements:
    def talk(facts: Facts) -> Talk:
        return list((yield statement).rows)

    return Statements(talk)


def examine(server: Any, texts: MysqlTexts) -> Op[list[Check]]:
    """Look at a server's version, durability, table, round trip and clock."""
    try:
        return (yield from _examine(server, texts))
    except LockError as error:
        return [Check("server", "fail", str(error))]


def _examine(server: Any, texts: MysqlTexts) -> Op[list[Check]]:
    version, flush = (yield Ask(server, _only(ABOUT)))[0]
    tested = "MariaDB" in str(version)
    words = str(version) if tested else f"{version}; these locks are tested on MariaDB only"
    checks = [Check("version", "ok" if tested else "warn", words)]
    if int(flush) != 1:
        checks.append(
            Check(
                "persistence", "warn",
                f"innodb_flush_log_at_trx_commit is {flush}: after each start nobody gets a lock for the seconds of "
                f"?grace=, since the last commits before a crash may be forgotten; make it 1",
            )
        )  # fmt: skip
    times = []
    for _ in range(ROUNDS):
        sent = time.perf_counter()
        now = (yield Ask(server, _only(f"SELECT {NOW}")))[0][0]
        times.append(time.perf_counter() - sent)
    skew = time.time() - int(now) / 1e6
    words = f"differs from this machine's by {skew * 1000:.0f} ms"
    if abs(skew) > SKEW:
        words += "; leases are judged by the server's clock alone, which must not jump: let NTP slew it"
    checks.append(Check("clock", "ok" if abs(skew) <= SKEW else "warn", words))
    checks.append(Check("server", "ok", f"answers in {min(times) * 1e6:.0f} us"))
    yield Ask(server, texts.leave(SEPARATOR + "doctor", "nobody"))
    engine = (yield Ask(server, _only(ENGINE.format(table=texts.table.strip("`")))))[0][0]
    if str(engine).lower() != "innodb":
        checks.append(Check("table", "fail", f"{texts.table} is of {engine}, not InnoDB: it forgets in a crash"))
    else:
        checks.append(Check("table", "ok", texts.table))
    return checks
