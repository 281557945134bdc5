"""One HTML page: a title, words, tables, pictures inside; nothing from elsewhere. Legible at 1280 and at 400 pixels."""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from ordercast.errors import InputError

STYLE = """
:root{color-scheme:light}body{margin:0;background:#f5f7fa;color:#1f2933;font:16px/1.55 system-ui,sans-serif}
main{max-width:70rem;margin:0 auto;padding:1.2rem}h1{font-size:1.7rem;line-height:1.2;margin:.6rem 0}
h2{font-size:1.25rem;margin:2rem 0 .6rem;border-bottom:2px solid #d9e2ec;padding-bottom:.25rem}
section>p{max-width:46rem}.wide{overflow-x:auto;background:#fff;border:1px solid #d9e2ec;border-radius:8px;
padding:.6rem}
table{border-collapse:collapse;font-size:.92rem;width:100%}th,td{text-align:left;padding:.35rem .6rem;
border-bottom:1px solid #e4e7eb;vertical-align:top}th{white-space:nowrap}td.n{text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}td{overflow-wrap:break-word}td:first-child{white-space:nowrap}th.n{text-align:right}
img{max-width:100%;min-width:38rem;height:auto;display:block;margin:0 auto}
.good{color:#0b6e4f;font-weight:600}.bad{color:#b42318;font-weight:600}.dim{color:#616e7c}
code{background:#e4e7eb;border-radius:4px;padding:.05rem .3rem;overflow-wrap:anywhere}li{margin:.3rem 0}
@media(max-width:600px){main{padding:.7rem}.wide{padding:.4rem}th,td{padding:.25rem}th{white-space:normal}
body{font-size:15px}table{font-size:.8rem}th{font-size:.72rem}td:last-child:not(.n){min-width:7.5rem}}
"""


class Page:
    """A page under construction; everything given as text is escaped."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts = [f"<h1>{html.escape(title)}</h1>"]

    def head(self, text: str) -> None:
        """Begin a section."""
        self.parts.append(f"<h2>{html.escape(text)}</h2>")

    def say(self, text: str, kind: str = "") -> None:
        """Add a paragraph."""
        self.parts.append(f'<section><p class="{kind}">{html.escape(text)}</p></section>')

    def points(self, texts: Iterable[str]) -> None:
        """Add a list."""
        self.parts.append("<ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in texts) + "</ul>")

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Add a table; numbers stand right, a cell that is (text, kind) has a colour."""
        rows = list(rows)
        numbers = [bool(rows) and isinstance(value, int | float) for value in rows[0]] if rows else [False] * len(heads)
        sides = ["n" if number else "" for number in numbers]
        top = "".join(f'<th class="{side}">{html.escape(head)}</th>' for head, side in zip(heads, sides, strict=True))
        body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
        self.parts.append(f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>')

    def picture(self, path: Path, describes: str) -> None:
        """Put an SVG or PNG into the page."""
        import base64

        kind = "svg+xml" if path.suffix == ".svg" else "png"
        data = base64.b64encode(path.read_bytes()).decode()
        image = f'<img alt="{html.escape(describes)}" src="data:image/{kind};base64,{data}">'
        self.parts.append(f'<div class="wide">{image}</div>')

    def write(self, path: Path) -> None:
        """Write the page whole or not at all."""
        head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        head += f'<title>{html.escape(self.title)}</title><link rel="icon" href="data:,"><style>{STYLE}</style>'
        text = (
            f'<!doctype html><html lang="en"><head>{head}</head><body><main>{"".join(self.parts)}</main></body></html>'
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None


def _cell(value: object) -> str:
    kind = ""
    if isinstance(value, tuple):
        value, kind = value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f'<td class="{kind}">{html.escape(str(value))}</td>'
    return (
        f'<td class="n {kind}">{value:,}</td>' if isinstance(value, int) else f'<td class="n {kind}">{value:.2f}</td>'
    )
