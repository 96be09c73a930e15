from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names of the page, or of what runs it
    from tests.docs.page_run import FOLDER

ADDRESSES = {"/var/lib/app/locks": str(FOLDER / "locks")}
(FOLDER / "report.sh").write_text("#!/bin/sh\n")
(FOLDER / "report.sh").chmod(0o755)
