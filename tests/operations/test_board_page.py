"""The board's pages load nothing from elsewhere, and their colours can be told apart (WCAG 2.2, AA:
text 4.5 to 1 on its background, marks and lines 3 to 1).
"""

import re

import pytest

from paddle_aws.operations.board.site import FOLDER

STYLE = (FOLDER / "board.css").read_text()
TEXT = ("text", "quiet", "link", "good", "bad", "busy")
MARKS = (
    *(f"rank-{number}" for number in range(1, 9)),
    *("training", "starting", "waiting", "data", "saving", "slowest", "lost", "boundary"),
)


def colours(scheme: str) -> dict[str, str]:
    light, dark = STYLE.split("@media (prefers-color-scheme: dark)")
    pattern = r"--([a-z0-9-]+): (#[0-9a-f]{6})"
    colours = dict(re.findall(pattern, light.partition("}")[0]))
    if scheme == "dark":
        colours |= dict(re.findall(pattern, dark.partition("}")[0]))
    return colours


def luminance(colour: str) -> float:
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    darker, lighter = sorted(map(luminance, (first, second)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(scheme: str) -> None:
    palette = colours(scheme)
    pairs = [(name, on, 4.5) for name in TEXT for on in ("background", "surface")]
    pairs += [(name, on, 3.0) for name in MARKS for on in ("background", "band")]
    pairs += [("background", "link", 4.5)]  # A chosen switch.
    pairs += [("starting", "waiting", 3.0)]  # The greys of the bar.
    weak = {
        f"{name} on {on}": round(contrast(palette[name], palette[on]), 2)
        for name, on, least in pairs
        if contrast(palette[name], palette[on]) < least
    }
    assert weak == {}


def test_no_address_outside_and_a_name_for_each_picture() -> None:
    for file in FOLDER.iterdir():
        text = file.read_text()
        assert not re.search(r"https?://|@import|url\(", text), file
        if file.suffix == ".html":
            assert '<html lang="en">' in text
            assert set(re.findall(r'(?:src|href)="([^"]+)"', text)) <= {
                *(page.name for page in FOLDER.iterdir()),
                *("plotly.js", "data:,", "../../"),
            }
