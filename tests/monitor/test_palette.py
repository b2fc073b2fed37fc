"""The colours of curves can be read on white and on black, and told apart by everyone."""

from __future__ import annotations

from itertools import combinations

import pytest

from tinker_cli.monitor.canvas import COLOURS

Triple = tuple[float, float, float]

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency" (2009), severity 1.0, on linear RGB
SIGHT: dict[str, tuple[Triple, Triple, Triple]] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def linear(colour: str) -> Triple:
    """`#rrggbb` as linear RGB from 0 to 1 (IEC 61966-2-1)."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return r, g, b


def dot(row: Triple, of: Triple) -> float:
    return sum(x * y for x, y in zip(row, of, strict=True))


def luminance(colour: str) -> float:
    return dot((0.2126, 0.7152, 0.0722), linear(colour))


def lab(rgb: Triple) -> Triple:
    """CIE Lab under D65 of linear RGB."""
    rows: tuple[Triple, ...] = (
        (0.4124, 0.3576, 0.1805),
        (0.2126, 0.7152, 0.0722),
        (0.0193, 0.1192, 0.9505),
    )
    white = (0.95047, 1.0, 1.08883)
    shares = [dot(row, rgb) / one for row, one in zip(rows, white, strict=True)]
    x, y, z = (s ** (1 / 3) if s > 216 / 24389 else (24389 / 27 * s + 16) / 116 for s in shares)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("colour", COLOURS)
def test_contrast_is_that_of_graphics_on_white_and_on_black(colour: str) -> None:
    """3:1 is what WCAG 2.1 asks of graphics (1.4.11)."""
    assert 1.05 / (luminance(colour) + 0.05) >= 3
    assert (luminance(colour) + 0.05) / 0.05 >= 3


@pytest.mark.parametrize("kind", SIGHT)
def test_no_two_colours_look_alike(kind: str) -> None:
    def seen(colour: str) -> Triple:
        r, g, b = (min(max(dot(row, linear(colour)), 0.0), 1.0) for row in SIGHT[kind])
        return lab((r, g, b))

    for one, other in combinations(COLOURS, 2):
        distance = sum((x - y) ** 2 for x, y in zip(seen(one), seen(other), strict=True)) ** 0.5
        assert distance >= 20, (one, other, distance)
