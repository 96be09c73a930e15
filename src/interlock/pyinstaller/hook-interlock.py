"""The hidden imports and data files of interlock for PyInstaller."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

hiddenimports = [
    each
    for part in ("api", "client", "core", "drivers", "patterns", "store_api", "storekit", "stores")
    for each in collect_submodules(f"interlock.{part}")
]
datas = collect_data_files("interlock", includes=["stores/**/*.lua", "stores/**/*.sql"])
