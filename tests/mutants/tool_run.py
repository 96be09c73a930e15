"""Make the errors of a mutation tool in a copy of the tree, and check that quick tests fail: `./dev mutants tool`.

    ./dev mutants tool                          a random sample of the errors in core, client and the store of memory
    ./dev mutants tool --seed 7 --number 50     another one, smaller
    ./dev mutants tool acquire.py stores/files  in these files only

Each error is judged by the quick tests that execute its line, as many as take `BUDGET` seconds.  The exit status is 1
if fewer than 88 % are killed.
"""

import argparse
import difflib
import math
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.mutants.pytest_run import PASSED, ROOT, Ended, copied_to, run_pytest
from tests.mutants.quick_tests import FOR_TASKS, FOR_THREADS, Recording, asked_about, chosen, record
from tests.mutants.tool_mutations import Mutation, mutated, mutations_of
from tools.unasync import HEADER, threads_of

USUAL = (
    "src/interlock/core/",
    "src/interlock/client/",
    "src/interlock/patterns/",
    "src/interlock/api/",
    "src/interlock/storekit/_async/step_queue",
    "src/interlock/storekit/_async/record_queue",
    "src/interlock/stores/memory",
)
WANTED = 0.88
BUDGET = 60.0  # seconds of tests for one error
EACH = 20  # seconds of one test, which takes 5 at most without an error
SPARE = 30.0  # seconds for the start of pytest and the last test


class Judged(NamedTuple):
    """The verdict on an error.

    Attributes:
        mutation: the error.
        change: as a diff.
        tests: how many tests ran.
        killed: whether one of them failed.
        by: the test that failed; empty if the run as a whole failed.
    """

    mutation: Mutation
    change: str
    tests: int
    killed: bool
    by: str


def sample(root: Path, words: Sequence[str], seed: int, number: int) -> tuple[list[tuple[Mutation, str]], int]:
    """Draw errors at random.

    Args:
        root: of the tree.
        words: parts of the paths of the files.
        seed: of the random numbers; the same one draws the same errors from the same code.
        number: how many to draw at most.

    Returns:
        The errors, each with the file's text that has it; and how many there are to draw from.
    """
    written = [path for path in sorted((root / "src").rglob("*.py")) if "_sync" not in path.parts]
    files = [str(path.relative_to(root)) for path in written]
    possible = [
        each for file in files if any(word in file for word in words or USUAL) for each in mutations_of(root, file)
    ]
    random.Random(seed).shuffle(possible)
    drawn: list[tuple[Mutation, str]] = []
    for mutation in possible:
        if len(drawn) == number:
            break
        code = mutated((root / mutation.file).read_text(), mutation)
        if code is not None:
            drawn.append((mutation, code))
    return drawn, len(possible)


def ask(tree: Path, tests: Sequence[str], seconds: float) -> Ended:
    """Run tests in their order until one fails."""
    names = tree / "mutants.tests"
    names.write_text("\n".join(tests))
    return run_pytest(tree, ["-x", "-rfE", f"--timeout={EACH}", f"@{names}"], 3 * seconds + SPARE)


def judge(tree: Path, recording: Recording, mutation: Mutation, code: str) -> Judged:
    """Make one error, run its tests, and undo it."""
    before = (tree / mutation.file).read_text()
    change = "\n".join(list(difflib.unified_diff(before.splitlines(), code.splitlines(), lineterm="", n=0))[3:])
    tests = chosen(recording, asked_about(recording, tree, (mutation.file, mutation.line)), BUDGET)
    if not tests:
        return Judged(mutation, change, 0, False, "")
    seconds = sum(recording.seconds[test] for test in tests)
    try:
        _write(tree, mutation.file, code)
        ended = ask(tree, tests, seconds)
    finally:
        _write(tree, mutation.file, before)
    noticed = re.search(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - |$)", ended.said, re.MULTILINE)
    return Judged(mutation, change, len(tests), ended.status != PASSED, noticed[1] if noticed else "")


def _write(tree: Path, file: str, text: str) -> None:
    """Write a module, and the one for threads that is generated from it."""
    _replace(tree / file, text)
    if FOR_TASKS in file:
        _replace(tree / file.replace(FOR_TASKS, FOR_THREADS), HEADER + threads_of(text))


def _replace(path: Path, text: str) -> None:
    """Write a module, and remove its .pyc, which may match the new file's time and length."""
    path.write_text(text)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def judged(trees: Sequence[Path], recording: Recording, drawn: Sequence[tuple[Mutation, str]]) -> Iterator[Judged]:
    """Judge errors, one at a time in each tree."""
    free: SimpleQueue[Path] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def one(mutation: Mutation, code: str) -> Judged:
        tree = free.get()
        try:
            return judge(tree, recording, mutation, code)
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as pool:
        try:
            yield from pool.map(one, *zip(*drawn, strict=True))
        finally:
            pool.shutdown(cancel_futures=True)


def unsound(tree: Path, found: Sequence[Judged]) -> set[str]:
    """Return the tests that failed with an error, and also fail without it."""
    tests = sorted({each.by for each in found if each.by})
    names = tree / "mutants.tests"
    names.write_text("\n".join(tests))
    ended = run_pytest(tree, ["-rfE", f"--timeout={EACH}", f"@{names}"], SPARE + EACH * len(tests))
    return {test for test in tests if f" {test}" in ended.said} if ended.status != PASSED else set()


def interval(killed: int, number: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of the rate of all errors.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, 1927.
    """
    z, rate = 1.96, killed / number
    middle = rate + z * z / (2 * number)
    half = z * math.sqrt(rate * (1 - rate) / number + z * z / (4 * number * number))
    return (middle - half) / (1 + z * z / number), (middle + half) / (1 + z * z / number)


def told(found: Sequence[Judged], possible: int, seed: int) -> bool:
    """Print the rates; True if enough were killed."""
    kinds, survived = Counter[str](), Counter[str]()
    for each in found:
        kind = each.mutation.operator.partition("_")[0]
        kinds[kind] += 1
        survived[kind] += not each.killed
    for kind, number in kinds.most_common():
        print(f"{number - survived[kind]:>5} of {number:>3} killed: {kind}")
    killed = len(found) - survived.total()
    low, high = interval(killed, len(found))
    print(
        f"{killed} of {len(found)} killed, {100 * killed / len(found):.1f} % (of all {possible}: {100 * low:.0f} to "
        f"{100 * high:.0f} %, with 95 % confidence); seed {seed}"
    )
    return killed >= WANTED * len(found)


def main(words: Sequence[str]) -> int:
    """Judge a sample; return the exit status."""
    parser = argparse.ArgumentParser(prog="./dev mutants tool", description="See that tests notice random errors.")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="draws the same errors again")
    parser.add_argument("--number", type=int, default=200, help="of errors (default: %(default)s)")
    parser.add_argument("--trees", type=int, default=2 * (os.cpu_count() or 1), help="errors judged side by side")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="parts of paths (default: core, client, memory)")
    given = parser.parse_args(words)
    drawn, possible = sample(ROOT, given.paths, given.seed, given.number)
    if not drawn:
        print(f"no error can be made in {' or '.join(given.paths)}")
        return 1
    print(f"seed {given.seed}: {len(drawn)} of {possible} errors", flush=True)
    with TemporaryDirectory(prefix="interlock-mutants-") as folder:
        trees = [copied_to(Path(folder) / f"tree{number}") for number in range(min(given.trees, len(drawn)))]
        return int(not told(_judge_all(trees, drawn), possible, given.seed))


def _judge_all(trees: Sequence[Path], drawn: Sequence[tuple[Mutation, str]]) -> list[Judged]:
    started = time.monotonic()
    recording = record(trees[0])
    print(f"{len(recording.seconds)} quick tests, recorded in {time.monotonic() - started:.0f} s", flush=True)
    found = []
    for each in judged(trees, recording, drawn):
        found.append(each)
        if not each.killed:
            _show("SURVIVED", each)
    doubtful = unsound(trees[0], found)
    for at, each in enumerate(found):
        if each.by in doubtful:
            found[at] = each._replace(killed=False)
            _show(f"NOT JUDGED, {each.by} fails without it too", each)
    print(f"in {(time.monotonic() - started) / 60:.0f} min")
    return found


def _show(verdict: str, each: Judged) -> None:
    place = f"{each.mutation.file}:{each.mutation.line}"
    tests = f"{each.tests} tests" if each.tests else "no quick test executes it"
    print(f"{verdict}: {place} {each.mutation.operator} ({tests})\n{each.change}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
