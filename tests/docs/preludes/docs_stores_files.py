import os
import threading
from typing import TYPE_CHECKING

import interlock

if TYPE_CHECKING:  # names that the page or the test runner defines
    from tests.docs.run_page import FOLDER

folder = FOLDER / "locks"
shared = FOLDER / "shared"
ADDRESSES = {
    "/var/lib/app/locks?mode": f"{shared}?mode",
    "mkdir /var/lib/app/locks": f"mkdir -p {shared}",
    "chgrp app /var/lib/app/locks": f"chgrp $(id -gn) {shared}",
    "chmod 2770 /var/lib/app/locks": f"chmod 2770 {shared}",
    "/var/lib/app/locks": str(folder),
}
holding = interlock.connect(folder.as_uri())
grant = holding.lock("book:1", label="nightly report").acquire()
threading.Thread(
    target=lambda: interlock.connect(folder.as_uri()).lock("book:1").acquire(timeout=60), daemon=True
).start()
while len(holding.claims("book:1")) < 2:
    pass
os.chdir(folder)


def check() -> None:
    holding.close()
