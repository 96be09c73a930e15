from typing import TYPE_CHECKING

import interlock
from sqlalchemy import create_engine

if TYPE_CHECKING:  # names of the page, or of what runs it
    from tests.docs.page_run import FOLDER

engine = create_engine(f"sqlite:///{FOLDER}/app.db")
ADDRESSES = {"/var/lib/app/locks.db": f"{FOLDER}/locks.db"}
