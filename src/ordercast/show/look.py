"""The one look of all pictures: fonts, ink, colours, and how they are written."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from ordercast.errors import InputError

mpl.rcParams.update({"font.family": "DejaVu Sans", "svg.fonttype": "none", "svg.hashsalt": "ordercast"})
mpl.rcParams["text.parse_math"] = False  # a name is a name, dollars or not

INK, FAINT, PAPER = "#1f2933", "#9aa5b1", "#ffffff"


def picture_path(path: str | Path) -> Path:
    """Return the path when its ending is one we can write."""
    path = Path(path)
    if path.suffix.lower() not in {".svg", ".png", ".pdf"}:
        raise InputError(f"{path}: a picture ends in .svg, .png or .pdf, not {path.suffix!r}")
    return path


def save(figure: Figure, path: Path) -> None:
    """Write the picture whole or not at all."""
    drawn = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph the font lacks is drawn as a box; browsers bring their own fonts
        kind = path.suffix.lower()[1:]
        figure.savefig(drawn, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    try:
        path.write_bytes(drawn.getvalue())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def printable(name: str) -> str:
    """Show control characters as a sign: an SVG is XML and may not hold them."""
    return "".join(sign if sign.isprintable() else "�" for sign in name)


SAFE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#1f2933")
"""Told apart by colour-blind readers too (Okabe and Ito)."""


def safe_colours(names: Sequence[str]) -> dict[str, str]:
    """Give each of up to seven names a colour that nearly everybody tells from the others."""
    return dict(zip(names, SAFE, strict=False))


def colours(names: list[str]) -> dict[str, str]:
    """Give each name a colour; up to ten are easily told apart."""
    if len(names) <= 10:
        palette = [mpl.colors.to_hex(mpl.colormaps["tab10"](index)) for index in range(10)]
    elif len(names) <= 20:
        palette = [mpl.colors.to_hex(mpl.colormaps["tab20"](index)) for index in range(20)]
    else:  # hues a golden angle apart, in three shades
        hsv = [(index * 0.618 % 1, 0.85, (0.85, 0.65, 0.95)[index % 3]) for index in range(len(names))]
        palette = [mpl.colors.to_hex(tuple(mpl.colors.hsv_to_rgb(colour))) for colour in hsv]
    return dict(zip(names, palette, strict=False))
