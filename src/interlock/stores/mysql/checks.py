"""doctor: is this database fit to keep locks?"""

from typing import Any

from interlock.core.claims import SEPARATOR, Check
from interlock.core.effects import Ask, Op
from interlock.core.errors import LockError
from interlock.stores.sql.checks import clock_and_answers
from interlock.stores.sql.mysql import NOW, Facts, Statements, Talk
from interlock.stores.sql.mysqlsteps import MysqlTexts

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
    checks += yield from clock_and_answers(server, _only(f"SELECT {NOW}"))
    yield Ask(server, texts.leave(SEPARATOR + "doctor", "nobody"))
    engine = (yield Ask(server, _only(ENGINE.format(table=texts.table.strip("`")))))[0][0]
    if str(engine).lower() != "innodb":
        checks.append(Check("table", "fail", f"{texts.table} is of {engine}, not InnoDB: it forgets in a crash"))
    else:
        checks.append(Check("table", "ok", texts.table))
    return checks
