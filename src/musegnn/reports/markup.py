"""HTML from parts: text is escaped unless it is markup already, so that no name of others becomes any."""

import base64
import hashlib
import json
from html import escape
from typing import Any


class Html(str):
    """Markup, to be written as it is."""


def join(*parts: str) -> Html:
    """Markup of several parts."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def tag(name: str, *parts: str, **attributes: str | bool) -> Html:
    """An element: `tag("td", "a < b", class_="number")`; an attribute that is True has no value."""
    texts = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            texts.append(key)
        elif value is not False:
            texts.append(f'{key}="{escape(value)}"')
    return Html(f"<{' '.join(texts)}>{join(*parts)}</{name}>")


def table(head: list[str], rows: list[list[str]], *, class_: str = "", sort: bool = False) -> Html:
    """The first column holds names, the others numbers; what is cut off by a phone can be scrolled to."""
    cells = (
        [tag("button", text, type="button") if sort else text for text in head],
        *rows,
    )
    kinds = [tag("th", cell, scope="col") for cell in cells[0]]
    lines = [
        join(tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in cells[1:]
    ]
    body = tag("tbody", *(tag("tr", line) for line in lines))
    classes = f"{class_} sortable" if sort else class_
    return tag(
        "div", tag("table", tag("thead", tag("tr", *kinds)), body, class_=classes.strip()), class_="scroll"
    )


def plot_text(text: str) -> str:
    """For plotly, which takes tags and entities in a label for what they are in HTML."""
    return escape(text, quote=False)


def data_block(value: Any) -> Html:
    """JSON that no script can break out of, and that plotly is given."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="data">{text}</script>')


def script(code: str) -> tuple[Html, str]:
    """A script, and its digest for the policy that lets no other run."""
    # What the parser would take for its end, or the begin of a comment, is a string in JavaScript.
    code = code.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    return Html(f"<script>{code}</script>"), f"'sha256-{digest}'"
