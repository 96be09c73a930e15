"""python -m interlock.stores.sql [TABLE [SCHEMA]]: print the SQL that makes the table and the functions."""

import sys

from interlock.stores.sql.ddl import ddl

if __name__ == "__main__":
    print(ddl(*sys.argv[1:3]))
