def input(prompt: str) -> str:
    return ""  # Enter; tests/docs/test_first_screen.py presses it for real
