"""What the command is, for the help with and without click."""

COMMANDS = {
    "run": ("interlock.cli.group:run", "Hold a lock while a command runs."),
    "ls": ("interlock.cli.look:ls", "List the locks that somebody holds or waits for."),
    "show": ("interlock.cli.look:show", "Show the line of one lock, in its order."),
    "watch": ("interlock.cli.look:watch", "Show holders and waiters until Ctrl-C."),
    "serve": ("interlock.cli.serve:serve", "Show holders and waiters on a page of the browser."),
    "evict": ("interlock.cli.manage:evict", "Take claims of a lock away."),
    "doctor": ("interlock.cli.manage:doctor", "Find out whether a store is fit."),
}
"""Each command: where it is, and what it does."""
HEAD = """\
Locks between processes: run a command under one, and see who holds which.

The locks are where --store or $INTERLOCK_URL says, else in files of the user's own,
/tmp/interlock-UID.

Exit status: 64 wrong usage, 75 the store cannot be used; each command's help tells the others.
"""


def version_text() -> str:
    """Return what `interlock --version` prints."""
    from interlock import __version__

    return f"interlock {__version__}"


def help_text() -> str:
    """Return the help of an installation without click."""
    rows = "".join(f"  {name:8}{text}\n" for name, (_, text) in COMMANDS.items())
    return (
        f"Usage: interlock COMMAND [WORDS]...\n\n{HEAD}\nCommands:\n{rows}\n"
        "`interlock run --help` tells the options of run, which works as it is.  The others need click and rich:\n"
        "pip install 'interlock[cli]'\n"
    )
