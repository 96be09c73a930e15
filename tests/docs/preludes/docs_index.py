ADDRESSES = {"/var/lib/app/locks": str(FOLDER / "locks")}
