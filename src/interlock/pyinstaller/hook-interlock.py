"""What a program that PyInstaller freezes needs of interlock: the stores, both colours, scripts and statements."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

hiddenimports = [
    each for part in ("client", "core", "remote", "stores") for each in collect_submodules(f"interlock.{part}")
]
datas = collect_data_files("interlock", includes=["stores/**/*.lua", "stores/**/*.sql"])
