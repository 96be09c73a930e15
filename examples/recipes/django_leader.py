"""wsgi.py of a Django site: one thread does the periodic work, however many workers and hosts serve the site.

    gunicorn --workers 4 examples.recipes.django_leader:application

It is here and not in `AppConfig.ready`, which management commands call too.  With gunicorn's `preload_app` or
uWSGI's `lazy-apps = false` this module is loaded before the fork: start the thread in a hook of each worker then.
"""

import atexit
import os
import threading
import time

from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections

import interlock
from interlock.django import locks

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
application = get_wsgi_application()


def work(election: interlock.Election) -> None:
    """Do the periodic work for as long as this process leads."""
    while election.leading:
        close_old_connections()  # as Django does around a request
        with open(os.environ["LEDGER"], "a") as ledger:
            print(os.getpid(), file=ledger)
        time.sleep(0.2)


election = locks.election("periodic", ttl=10)
threading.Thread(target=election.run, args=(work,), name="periodic", daemon=True).start()
atexit.register(election.stop, timeout=5)  # the next candidate leads immediately
