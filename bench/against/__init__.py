"""Measures the working tree against the wheel of an older commit, in one run: `./dev bench --against WHEEL`."""
