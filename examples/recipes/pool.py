"""multiprocessing, concurrent.futures and joblib: a lock goes to the workers as an argument.

python -m examples.recipes.pool
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp

import joblib

import interlock


def add(lock: interlock.Lock, table: Path, times: int) -> None:
    """Read the number, add one and write it; without the lock, two processes at once would lose updates."""
    for _ in range(times):
        with lock:
            table.write_text(str(int(table.read_text()) + 1))


def main(folder: Path, times: int = 50) -> int:
    """Count in four processes of each kind; return the number in the table at the end."""
    table = folder / "table"
    table.write_text("0")
    with interlock.connect((folder / "locks").as_uri()) as locks:
        lock = locks.lock("table")  # pickled by URL and settings; in the worker it is the same lock
        for method in ("spawn", "fork"):
            with get_context(method).Pool(2) as pool:
                pool.starmap(add, [(lock, table, times)] * 2)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
            for done in [executor.submit(add, lock, table, times) for _ in range(2)]:
                done.result()
        joblib.Parallel(n_jobs=2)(joblib.delayed(add)(lock, table, times) for _ in range(2))
    return int(table.read_text())


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())))
