import interlock
from sqlalchemy import create_engine

engine = create_engine(f"sqlite:///{FOLDER}/app.db")
ADDRESSES = {"/var/lib/app/locks.db": f"{FOLDER}/locks.db"}
