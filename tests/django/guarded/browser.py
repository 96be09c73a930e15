"""What a browser sends from a page of HTML."""

import re
from html import unescape


def sent_by(html: str) -> dict[str, str]:
    """Return the data that a browser sends from an unchanged page of HTML."""
    sent: dict[str, str] = {}
    for tag in re.findall(r"<input [^>]*>", html):
        attributes = {name: unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}
        kind = attributes.get("type")
        chosen = kind not in ("checkbox", "radio", "submit", "file") or " checked" in tag
        if "name" in attributes and chosen and not attributes["name"].startswith("_"):
            sent[attributes["name"]] = attributes.get("value", "")
    for name, body in re.findall(r'<select name="([^"]+)".*?>(.*?)</select>', html, re.DOTALL):
        found = re.findall(r'<option value="([^"]*)" selected', body)
        sent[name] = unescape(found[0]) if found else ""
    for name, body in re.findall(r'<textarea name="([^"]+)"[^>]*>\n?(.*?)</textarea>', html, re.DOTALL):
        sent[name] = unescape(body)
    return sent
