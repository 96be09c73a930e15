from typing import TYPE_CHECKING

import interlock
from sqlalchemy import create_engine

if TYPE_CHECKING:  # names that the page or the test runner defines
    from tests.docs.run_page import FOLDER

engine = create_engine(f"sqlite:///{FOLDER}/app.db")
ADDRESSES = {"/var/lib/app/locks.db": f"{FOLDER}/locks.db"}
