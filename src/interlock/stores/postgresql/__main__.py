"""Print the SQL of the table: python -m interlock.stores.postgresql [TABLE [SCHEMA [GRACE]]]."""

import sys

from interlock.stores.postgresql.ddl import ddl

if __name__ == "__main__":
    words = sys.argv[1:4]
    print(ddl(*words[:2], **({"grace": float(words[2])} if words[2:] else {})))
