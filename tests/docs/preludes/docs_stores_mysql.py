# needs: mariadb
import os

import interlock
from sqlalchemy import create_engine

url = os.environ["INTERLOCK_DOCS_MARIADB"]
engine = create_engine(url.replace("mysql://", "mysql+pymysql://"))
ADDRESSES = {"mysql://user:password@host/database": url, "mysql://host/database": url}
