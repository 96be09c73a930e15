"""Paths and file names of Windows, as text; `windows/test_files.py` tests them on Windows."""

import pytest

from interlock import InvalidArgument, StoreError
from interlock.core.options import path_url
from interlock.stores.files import windows_paths as paths


@pytest.mark.parametrize(
    "name", ["con", "nul", "aux.txt", "com1", "lpt9.log", "prn.", "a:b", "dot.", "conout$", "com²"]
)
def test_a_name_that_windows_changes_is_no_file_name(name: str) -> None:
    assert paths.SHORT_NAME.fullmatch(name) is None


@pytest.mark.parametrize("name", ["book", "console", "nul-1", "com", "com10", "a.con", "v1.2", "x@y+z=1,2"])
def test_a_name_that_windows_keeps_is_its_own_file_name(name: str) -> None:
    assert paths.SHORT_NAME.fullmatch(name) is not None


@pytest.mark.parametrize(("words", "name"), [("con.x", "_con.x"), ("nul", "_nul"), ("contract.x", "contract.x")])
def test_the_readable_part_is_no_device(words: str, name: str) -> None:
    assert paths.readable(words) == name


@pytest.mark.parametrize(
    ("url_path", "path"),
    [("/C:/locks", "C:/locks"), ("/d:\\x", "d:\\x"), ("/C:", "C:"), ("/locks", "/locks"), ("//host/x", "//host/x")],
)
def test_the_path_of_a_url_loses_the_slash_of_a_drive(url_path: str, path: str) -> None:
    assert paths.path_in_url(url_path) == path


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("C:/locks", "C:\\locks"),
        ("c:\\a\\..\\b/", "c:\\b"),
        ("D:/" + "x" * 200, "\\\\?\\D:\\" + "x" * 200),
        ("C:/ünï", "C:\\ünï"),
    ],
)
def test_a_folder_has_a_drive(path: str, found: str) -> None:
    assert paths.folder_path(path) == found


@pytest.mark.parametrize(
    "path",
    ["/locks", "locks", "C:locks", "C:", "\\\\?\\C:\\x", "\\\\.\\pipe\\x", "C:/con/x", "C:/a:b", "C:/x ", "C:/a?"],
)
def test_what_is_no_folder_of_a_drive_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgument):
        paths.folder_path(path)


@pytest.mark.parametrize("path", ["//server/share/locks", "\\\\server\\share\\locks"])
def test_a_folder_of_another_machine_is_refused(path: str) -> None:
    with pytest.raises(StoreError, match=r"UNC.*redis://"):
        paths.folder_path(path)


@pytest.mark.parametrize(
    ("path", "begin", "url"),
    [
        ("C:\\a b\\50%", "file://", "file:///C:/a%20b/50%25"),
        ("C:/locks.db", "sqlite:///", "sqlite:///C:/locks.db"),
        ("/var/lib", "file://", "file:///var/lib"),
        ("/var/x.db", "sqlite:///", "sqlite:////var/x.db"),
    ],
)
def test_the_url_of_a_path_keeps_its_drive(path: str, begin: str, url: str) -> None:
    assert path_url(path, begin) == url


@pytest.mark.parametrize(("path", "url"), [("C:/locks", "file:///C:/locks"), ("server/share", "file:///C:/locks")])
def test_advice_names_a_folder_with_a_drive(path: str, url: str) -> None:
    assert paths.folder_meant(path) == url
