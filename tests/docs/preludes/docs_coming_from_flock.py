from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names that the page or the test runner defines
    from tests.docs.run_page import FOLDER

(FOLDER / "job").write_text("#!/bin/sh\necho done >>done\n")
(FOLDER / "job").chmod(0o755)
ADDRESSES = {"/tmp/job.lock": str(FOLDER / "job.lock")}


def check() -> None:
    assert (FOLDER / "done").read_text() == 4 * "done\n"
