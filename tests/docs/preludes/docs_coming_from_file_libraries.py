ADDRESSES = {"/tmp/report.lock": str(FOLDER / "report.lock"), "/var/lib/app/locks": str(FOLDER / "locks")}
made = []


def make_report():
    made.append(1)


def check():
    assert len(made) == 3
