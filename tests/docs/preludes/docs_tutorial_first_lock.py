import re
import sys
from pathlib import Path

printed: list[str] = []


def print(*words: object) -> None:
    """Keep it, to compare it with the comments of the page."""
    printed.append(" ".join(map(str, words)))


def check() -> None:
    page = Path(sys.argv[1]).read_text()
    comments = re.findall(r"^ *print\(.*\) +# (.*)$", page, re.M)
    assert printed == comments, (printed, comments)
    assert len(comments) >= 10
