"""Check the subjects of new commits: `python tools/subjects.py [COMMIT…]`; new is what no remote branch has.

A subject is `area: do something`, in the imperative, in at most 72 characters.  That it is an imperative is guessed:
the first word is none that begins a noun, and no `-ed`, `-ing` or `-s`.
"""

import re
import shutil
import subprocess
import sys

LONGEST = 72
FORM = re.compile(r"[\w./+, -]+: (?P<word>[^\s]+) [^\s].*[^.\s]")
BEGIN_NOUNS = frozenset(
    [
        "a",
        "an",
        "the",
        "what",
        "who",
        "whose",
        "which",
        "whether",
        "where",
        "when",
        "one",
        "no",
        "each",
        "every",
        "more",
        "its",
        "it",
        "is",
        "this",
    ]
)
IMPERATIVES = frozenset(
    [
        "need",
        "feed",
        "embed",
        "speed",
        "exceed",
        "proceed",
        "succeed",
        "seed",
        "shed",
        "bring",
        "string",
        "focus",
        "bias",
        "alias",
    ]
)


def wrong(subject: str) -> str:
    """Return what is wrong with a subject; "" if nothing is."""
    if len(subject) > LONGEST:
        return f"has {len(subject)} characters, and {LONGEST} are allowed"
    found = FORM.fullmatch(subject)
    if found is None:
        return "is not of the form `area: do something`, without a full stop"
    word = found["word"].lower()
    bent = word.endswith(("ed", "ing")) or (word.endswith("s") and not word.endswith("ss"))
    if word in BEGIN_NOUNS or (bent and word not in IMPERATIVES):
        return f"does not begin with an imperative: {found['word']!r}"
    return ""


def new_commits() -> list[str]:
    """Return the subjects of the commits that no remote branch has; none outside of a clone, or without git."""
    command = ["git", "log", "--no-merges", "--format=%s", "HEAD", "--not", "--remotes"]
    if shutil.which("git") is None:
        return []
    has_remote = subprocess.run(["git", "branch", "--remotes"], capture_output=True, text=True, check=False)
    if has_remote.returncode or not has_remote.stdout.strip():
        return []
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def main(ranges: list[str]) -> int:
    """Print what is wrong; return the status."""
    if ranges:
        command = ["git", "log", "--no-merges", "--format=%s", *ranges]
        subjects = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    else:
        subjects = new_commits()
    faults = [f"{subject!r} {why}" for subject in subjects if (why := wrong(subject))]
    for fault in faults:
        print(f"The commit {fault}. Run: git commit --amend", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
