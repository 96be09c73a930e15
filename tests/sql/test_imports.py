"""What all SQL stores share is imported without the libraries that a program may not have, or has not loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from interlock.stores import sql

MODULES = sorted(path.stem for path in Path(sql.__path__[0]).glob("*.py") if not path.stem.startswith("__"))
LOADS = """
import sys
import interlock.stores.sql.{module}
print(*{{name.partition(".")[0] for name in sys.modules}} & {{"sqlalchemy", "django", "psycopg", "pymysql"}})
"""


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_sql_stores_share_loads_no_library(module: str) -> None:
    command = [sys.executable, "-c", LOADS.format(module=module)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == []
