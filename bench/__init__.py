"""Benchmarks: interlock and its peers side by side, interleaved. Run `python -m bench --help`."""
