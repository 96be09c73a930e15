"""`interlock serve`: a page with the holders and waiters of locks."""

import os
import socket
from typing import TextIO

import click

from interlock.cli import called, connect
from interlock.cli.exit_codes import UNAVAILABLE, fail, one_line, say
from interlock.cli.parameters import namespace_option, store_option

TOKEN = "INTERLOCK_SERVE_TOKEN"
MIN_TOKEN_LENGTH = 16  # characters; guesses are not counted
MAX_TOKEN_LENGTH = 4096


def token_of(file: TextIO | None) -> str | None:
    """Return the token for evictions; None if there is none.

    Args:
        file: the file with the token; None for the environment.

    Raises:
        UsageError: the token is invalid.
    """
    token = os.environ.get(TOKEN) if file is None else file.read(MAX_TOKEN_LENGTH + 2).strip()
    if token is not None and not (
        token.isascii()
        and token.isprintable()
        and " " not in token
        and MIN_TOKEN_LENGTH <= len(token) <= MAX_TOKEN_LENGTH
    ):
        raise click.UsageError(
            f"The token must have {MIN_TOKEN_LENGTH} or more printable ASCII characters without spaces. Create one "
            f"with: python3 -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token


@click.command()
@namespace_option
@store_option
@click.option("--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="Port to listen on; 0 selects a free port.",
)
@click.option(
    "--allow-host",
    metavar="NAME",
    multiple=True,
    help="Host name of the page, besides HOST, localhost and IP addresses; may be repeated.",
)
@click.option(
    "--token-file",
    metavar="PATH",
    type=click.File(encoding="ascii", errors="replace"),
    help=f"File with the token that allows evictions. Default: ${TOKEN}; without both, the page cannot evict.",
)
def serve(
    store: str | None, namespace: str, host: str, port: int, allow_host: tuple[str, ...], token_file: TextIO | None
) -> int:
    """Serve a page of holders and waiters, until Ctrl-C or TERM.

    Every user who can reach the port can read the page. Only users who know the token can evict; the token is never
    part of the command line or of a URL.
    """
    from interlock.cli.serve.app import app_of, run

    token = token_of(token_file)
    name = one_line(called(store))
    with connect(store, namespace=namespace) as locks:
        list(locks.claims())  # fail early if the store is unavailable
        try:
            # Because uvicorn would end the process with a traceback if it cannot listen.
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, place = found[0]
            listening = socket.create_server(place[:2], family=family, backlog=128)
        except OSError as error:
            return fail(UNAVAILABLE, f"Cannot listen on {host} port {port}: {error.strerror or error}. Try --port 0.")
        with listening:
            address, number = listening.getsockname()[:2]
            shown = f"[{address}]" if ":" in address else address
            rights = "read-only" if token is None else "a client with the token can evict"
            click.echo(f"Store {name} at http://{shown}:{number}/ ({rights})")
            if not address.startswith("127.") and address != "::1":
                say("Every client that reaches this port can read the names of locks. There is no TLS.")
            run(app_of(locks, name, namespace, token, {host, *allow_host}), listening)
    return 0
