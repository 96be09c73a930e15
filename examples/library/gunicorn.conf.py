"""How gunicorn serves the site: several processes with several threads each, on one's own machine only."""

import os
from pathlib import Path
from typing import Any

wsgi_app = "library.wsgi"
chdir = str(Path(__file__).resolve().parent)
bind = f"127.0.0.1:{os.environ.get('LIBRARY_PORT', '8000')}"
workers = int(os.environ.get("LIBRARY_WORKERS", "3"))
threads = int(os.environ.get("LIBRARY_THREADS", "4"))
preload_app = True
loglevel = "warning"
control_socket_disable = True  # it would be one in the user's home, for all sites
keepalive = 30  # seconds
graceful_timeout = 5  # seconds


def when_ready(server: Any) -> None:
    """Print the address; with port 0 the system has chosen it."""
    host, port = server.LISTENERS[0].sock.getsockname()
    print(f"The library is at http://{host}:{port}/", flush=True)
