"""Write the files that pages show into the pages: `python tools/pages.py [--check]`.

GitHub shows no directive that includes a file, so the text itself is in the page, behind a comment that names it:

    <!-- shows examples/recipes/web.py -->
    ```python
    ...
    ```
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHOWN = re.compile(r"(<!-- shows (?P<path>\S+) -->\n(?P<fence>`{3,})\w+\n).*?(?P=fence)(?=\n)", re.DOTALL)


def with_files(page: str) -> str:
    """Return the text of a page with each file that it shows as that is now."""

    def shown(found: re.Match[str]) -> str:
        return found[1] + (ROOT / found["path"]).read_text(encoding="utf-8") + found["fence"]

    return SHOWN.sub(shown, page)


def main(check: bool) -> int:
    """Bring all pages up to date, or tell which are not; return the status."""
    stale = 0
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        text = page.read_text(encoding="utf-8")
        now = with_files(text)
        if now != text and check:
            print(
                f"{page.relative_to(ROOT)} shows an older text of a file: run python tools/pages.py", file=sys.stderr
            )
            stale += 1
        elif now != text:
            page.write_text(now, encoding="utf-8")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
