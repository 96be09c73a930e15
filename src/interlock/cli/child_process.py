"""The choice of the system that runs the command."""

import sys

from interlock.cli.command_process import System

if sys.platform == "win32":
    from interlock.cli import _child_windows as chosen
else:
    from interlock.cli import _child_posix as chosen

system: System = chosen
