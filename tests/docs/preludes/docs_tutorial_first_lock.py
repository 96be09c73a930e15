import re
import sys
from pathlib import Path

printed = []


def print(*words):
    """Keep it, to compare it with the comments of the page."""
    printed.append(" ".join(map(str, words)))


def check():
    page = Path(sys.argv[1]).read_text()
    comments = re.findall(r"^ *print\(.*\) +# (.*)$", page, re.M)
    assert printed == comments, (printed, comments)
    assert len(comments) >= 10
