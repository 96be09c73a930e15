from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names of the page, or of what runs it
    from tests.docs.page_run import FOLDER

(FOLDER / "train.sh").write_text("#!/bin/sh\n")
(FOLDER / "train.sh").chmod(0o755)
