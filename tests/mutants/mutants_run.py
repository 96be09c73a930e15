"""Make each error of the table in a copy of the tree, and check that its tests fail: `./dev mutants`.

    ./dev mutants              all of them
    ./dev mutants fork Lua     those whose names contain one of these words

An error survives if its tests pass.  The exit status is 1 if one survives, or if the table does not fit the code:
a text that is not found exactly once, tests that fail without the error or do not exist.
"""

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.mutants_table import MUTANTS, Mutant
from tests.mutants.pytest_run import FAILED, PASSED, ROOT, copied_to, run_pytest

LONGEST = 240  # seconds of one run; an error that lets the tests hang for so long is noticed


def misfits(root: Path = ROOT) -> list[str]:
    """Return what is wrong with the table: old texts that are not found exactly once in their files."""
    found = []
    for mutant in MUTANTS:
        for change in mutant.changes:
            number = (root / change.file).read_text().count(change.old)
            if number != 1:
                found.append(f"{mutant.name}: {number} times in {change.file}: {change.old!r}")
    return found


def verdict(tree: Path, tests: str) -> str:
    """Run tests in a tree; return "passed", "failed", or a description of the problem."""
    words = ["-x", "--timeout=90", *shlex.split(tests)]
    ended = run_pytest(tree, words, LONGEST, PYTHONDONTWRITEBYTECODE="1")
    if ended.status is None:
        return "failed"
    if ended.status in (PASSED, FAILED):
        return "passed" if ended.status == PASSED else "failed"
    return "pytest could not run them:\n" + "\n".join(ended.said.splitlines()[-15:])


def judged(tree: Path, mutant: Mutant) -> str:
    """Make the error, run its tests, undo it; return "killed", "SURVIVED", or a description of the problem."""
    before = {change.file: (tree / change.file).read_text() for change in mutant.changes}
    try:
        for change in mutant.changes:
            path = tree / change.file
            path.write_text(path.read_text().replace(change.old, change.new))
        said = verdict(tree, mutant.tests)
    finally:
        for file, text in before.items():
            (tree / file).write_text(text)
    return {"passed": "SURVIVED", "failed": "killed"}.get(said, said)


def main(words: Sequence[str]) -> int:
    """Judge the errors whose names contain one of `words`, or all; return the exit status."""
    wrong = misfits()
    for each in wrong:
        print(f"the table does not fit the code: {each}", flush=True)
    if wrong:
        return 1
    chosen = [each for each in MUTANTS if not words or any(word.lower() in each.name.lower() for word in words)]
    if not chosen:
        print(f"no error has a name with {' or '.join(words)}")
        return 1
    started, killed = time.monotonic(), 0
    sound: dict[str, str] = {}
    with TemporaryDirectory(prefix="interlock-mutants-") as folder:
        tree = copied_to(Path(folder) / "tree")
        for mutant in chosen:
            # Tests that fail without the error would prove nothing.
            sound[mutant.tests] = sound.get(mutant.tests) or verdict(tree, mutant.tests)
            said = judged(tree, mutant) if sound[mutant.tests] == "passed" else "NOT JUDGED"
            killed += said == "killed"
            print(f"{said:<10}{mutant.name}", flush=True)
            if said == "NOT JUDGED":
                print(f"          without the error: {sound[mutant.tests]}: {mutant.tests}", flush=True)
    rate = 100 * killed / len(chosen)
    print(f"{killed} of {len(chosen)} killed, {rate:.0f} %, in {(time.monotonic() - started) / 60:.0f} min")
    return int(killed < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
