"""Connection lifetime: one for each process, made where it is first needed, closed where the program ends.

python -m examples.recipes.lifetime
"""

import atexit
import os
from functools import cache

import interlock


@cache
def locks() -> interlock.Locks:
    """Connect once, at the first use; importing this module touches no store."""
    found = interlock.connect(os.environ.get("INTERLOCK_URL"), namespace="shop")
    atexit.register(found.close)
    return found


def work(name: str) -> int:
    """Use it from any thread: a connection is made for many at once."""
    with locks().lock(name, timeout=5) as grant:
        return grant.fence


def in_a_child() -> int:
    """Fork: the child has nothing of its parent's, and locks for itself over the same object."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(work("child")).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(reader, 20))


if __name__ == "__main__":
    with locks().lock("parent"):
        print(work("one"), in_a_child())
