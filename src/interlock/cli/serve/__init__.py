"""`interlock serve`: a page with the holders and waiters of locks."""

import os
import socket
from pathlib import Path

import click

from interlock.cli import called, connect
from interlock.cli.exits import UNAVAILABLE, USAGE, fail, one_line, say
from interlock.cli.output import namespace_option, store_option

EXTRA = ("starlette", "uvicorn", "anyio", "h11")
TOKEN = "INTERLOCK_SERVE_TOKEN"
SHORTEST = 16  # characters; guesses are not counted
LONGEST = 4096


def token_of(file: Path | None) -> str | None:
    """Return the token; None if there is none.

    Args:
        file: holds it; None for the environment.

    Raises:
        ValueError: it can't be read or is no token; the message says what to do.
    """
    if file is None:
        token, where = os.environ.get(TOKEN), f"${TOKEN}"
        if token is None:
            return None
    else:
        token, where = _read(file), f"{str(file)!r}"
    if not (token.isascii() and token.isprintable() and " " not in token and SHORTEST <= len(token) <= LONGEST):
        raise ValueError(
            f"the token in {where} must have {SHORTEST} or more printable ASCII characters without spaces; make one "
            f"by: python3 -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o007:
                say(f"every user of this machine can read the token in {str(file)!r}: chmod 600")
            return opened.read(LONGEST + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise ValueError(f"the token can't be read from {str(file)!r}: {error.strerror or error}") from error


@click.command()
@namespace_option
@store_option
@click.option("--host", metavar="HOST", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="The port to listen on; 0 means any free port.",
)
@click.option(
    "--allow-host",
    metavar="NAME",
    multiple=True,
    help="A host name by which browsers reach the page, besides HOST, localhost and IP addresses; may be repeated.",
)
@click.option(
    "--token-file",
    metavar="PATH",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"File with the token that allows evictions. Default: ${TOKEN}; without both, the page can't evict.",
)
def serve(
    store: str | None, namespace: str, host: str, port: int, allow_host: tuple[str, ...], token_file: Path | None
) -> int:
    """Serve a page of holders and waiters, until Ctrl-C or TERM.

    Every user who can reach the port can read the page. Only users who know the token can evict; the token is never
    part of the command line or of a URL.
    """
    try:
        from interlock.cli.serve.app import app_of, run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        return fail(UNAVAILABLE, "interlock serve needs Starlette and uvicorn: pip install 'interlock[serve]'")
    try:
        token = token_of(token_file)
    except ValueError as error:
        return fail(USAGE, str(error))
    name = one_line(called(store))
    with connect(store, namespace=namespace) as locks:
        list(locks.claims())  # a store that can't be used is to be told now
        try:
            listening = _listening(host, port)
        except OSError as error:
            return fail(UNAVAILABLE, f"can't listen on {host} port {port}: {error.strerror or error}; try --port 0")
        with listening:
            address, number = listening.getsockname()[:2]
            shown = f"[{address}]" if ":" in address else address
            rights = "read-only" if token is None else "a client with the token can evict"
            click.echo(f"Store {name} at http://{shown}:{number}/ ({rights})")
            if not address.startswith("127.") and address != "::1":
                say("every client that reaches this port can read the names of locks; there is no TLS")
            app = app_of(locks, name, namespace, token, {host, *allow_host})
            run(app, listening)
    return 0


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; uvicorn would end the process with a traceback where it can't."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server(address[:2], family=family, backlog=128)
