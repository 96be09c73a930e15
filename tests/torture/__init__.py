"""Torture tests: processes use locks while faults are injected, and a judge checks the history of what they saw.

`plan` has the options and operations of a run, `worker` performs them and writes a history, `faults` injects faults,
`coordinator` runs both, and `judge` reads only the history. The command is `./dev torture`.
"""
