from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names that the page or the test runner defines
    from tests.docs.run_page import FOLDER

ADDRESSES = {"/var/lib/app/locks": str(FOLDER / "locks")}
written = []
shelf = SimpleNamespace(
    read=lambda number: SimpleNamespace(number=number), write=lambda book, fence: written.append((book.name, fence))
)
(FOLDER / "report.sh").write_text("#!/bin/sh\necho report >report\n")
(FOLDER / "report.sh").chmod(0o755)


def check() -> None:
    assert [name for name, fence in written] == ["The name, without the typo"]
    assert (FOLDER / "report").read_text() == "report\n"
