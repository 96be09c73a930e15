"""Run a command in a new pseudo console, press Ctrl-C there when the file "press" appears, and exit with its status.

The output of the command is in the file "output".  Usage: python console.py COMMAND_LINE
"""

import ctypes
import signal
import subprocess
import sys
import time
from ctypes import wintypes
from pathlib import Path

assert sys.platform == "win32"

CTRL_C_EVENT, EXTENDED_STARTUPINFO_PRESENT, PSEUDOCONSOLE_ATTRIBUTE = 0, 0x80000, 0x20016
SIZE = 80 + 25 * 65536  # COORD


class StartupInfo(ctypes.Structure):
    """STARTUPINFOEXW."""

    _fields_ = [
        ("size", wintypes.DWORD),
        ("names", wintypes.LPWSTR * 3),
        ("numbers", wintypes.DWORD * 8),
        ("words", wintypes.WORD * 2),
        ("reserved", ctypes.c_void_p),
        ("streams", wintypes.HANDLE * 3),
        ("attributes", ctypes.c_void_p),
    ]


class ProcessInformation(ctypes.Structure):
    """PROCESS_INFORMATION."""

    _fields_ = [("process", wintypes.HANDLE), ("thread", wintypes.HANDLE), ("ids", wintypes.DWORD * 2)]


def in_console(line: str) -> int:
    """Run a command in a new console; return its status."""
    system = ctypes.WinDLL("kernel32")
    ends = [wintypes.HANDLE() for _ in range(4)]
    for reader, writer in (ends[:2], ends[2:]):
        assert system.CreatePipe(ctypes.byref(reader), ctypes.byref(writer), None, 0)
    console, size = wintypes.HANDLE(), ctypes.c_size_t()
    assert system.CreatePseudoConsole(SIZE, ends[0], ends[3], 0, ctypes.byref(console)) == 0
    system.InitializeProcThreadAttributeList(None, 1, 0, ctypes.byref(size))
    attributes = ctypes.create_string_buffer(size.value)
    assert system.InitializeProcThreadAttributeList(attributes, 1, 0, ctypes.byref(size))
    width = ctypes.c_size_t(ctypes.sizeof(console))
    key = ctypes.c_size_t(PSEUDOCONSOLE_ATTRIBUTE)
    assert system.UpdateProcThreadAttribute(attributes, 0, key, console, width, None, None)
    start = StartupInfo(size=ctypes.sizeof(StartupInfo), attributes=ctypes.addressof(attributes))
    made = ProcessInformation()
    text = ctypes.create_unicode_buffer(line)
    flags = EXTENDED_STARTUPINFO_PRESENT
    assert system.CreateProcessW(
        None, text, None, None, False, flags, None, None, ctypes.byref(start), ctypes.byref(made)
    )
    system.WaitForSingleObject(wintypes.HANDLE(made.process), -1)
    status = wintypes.DWORD()
    system.GetExitCodeProcess(wintypes.HANDLE(made.process), ctypes.byref(status))
    return status.value


def pressing(line: str) -> int:
    """Run a command in this console, and press Ctrl-C; return its status."""
    signal.signal(signal.SIGINT, lambda number, frame: None)
    with open("output", "w") as output:
        command = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        while not Path("press").exists():
            if command.poll() is not None:
                return command.returncode
            time.sleep(0.05)
        system = ctypes.WinDLL("kernel32")
        assert system.GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0)
        return command.wait()


if __name__ == "__main__":
    mode, line = ("new", sys.argv[1]) if len(sys.argv) == 2 else sys.argv[1:]
    if mode == "new":
        sys.exit(in_console(subprocess.list2cmdline([sys.executable, __file__, "inside", line])))
    sys.exit(pressing(line))
