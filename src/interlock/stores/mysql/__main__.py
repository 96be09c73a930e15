"""Print the SQL that creates the table of the locks: python -m interlock.stores.mysql [TABLE]."""

import sys

from interlock.stores.mysql import ddl

print(f"{ddl(*sys.argv[1:2])};")
