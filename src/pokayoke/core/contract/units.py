"""Units of length, mass, time, volume, data and temperature, and exact conversion between them.

Factors are exact fractions of the SI unit (international yard and pound agreement of 1959; IEC 80000-13
for data). Ambiguous units are left out: gallon, pint, cup, fluid ounce (US or imperial), ton
(metric, short, long), month and year, `KB` (1000 or 1024), `m` for minutes.
"""

from __future__ import annotations

import re
from fractions import Fraction

_AMOUNT = re.compile(
    r"(?P<number>[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?) ?(?P<unit>[^\s0-9.,+-][^0-9.,+-]{0,20})", re.ASCII
)
THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{2}0", re.ASCII)
"""A number whose point may separate thousands: `1.500`."""
_MAX_TEXT = 60

# dimension -> factor in the base unit -> symbols (exact case) and words (any case)
_TABLE: dict[str, dict[str, str]] = {
    "length": {
        "1": "m metre meter metres meters",
        "1000": "km KM Km kilometre kilometer kilometres kilometers",
        "1/10": "dm decimetre decimeter decimetres decimeters",
        "1/100": "cm CM Cm centimetre centimeter centimetres centimeters",
        "1/1000": "mm millimetre millimeter millimetres millimeters",
        "1/1000000": "um µm μm micrometre micrometer micrometres micrometers",
        "0.0254": "in inch inches",
        "0.3048": "ft foot feet",
        "0.9144": "yd yard yards",
        "1609.344": "mi mile miles",
        "1852": "nmi",
    },
    "mass": {
        "1": "g gram grams gramme grammes",
        "1000": "kg KG Kg kilogram kilograms kilo kilos",
        "1/1000": "mg milligram milligrams",
        "1/1000000": "ug µg μg microgram micrograms",
        "1000000": "t tonne tonnes",
        "28.349523125": "oz ounce ounces",
        "453.59237": "lb lbs LB LBS pound pounds",
    },
    "time": {
        "1": "s sec secs second seconds",
        "60": "min mins minute minutes",
        "3600": "h hr hrs hour hours",
        "86400": "d day days",
        "604800": "wk week weeks",
        "1/1000": "ms millisecond milliseconds",
        "1/1000000": "us µs μs microsecond microseconds",
    },
    "volume": {
        "1": "l L litre liter litres liters",
        "1/10": "dl dL decilitre deciliter decilitres deciliters",
        "1/100": "cl cL centilitre centiliter centilitres centiliters",
        "1/1000": "ml mL cm3 cm³ millilitre milliliter millilitres milliliters",
        "1000": "m3 m³",
    },
    "data": {
        "1": "B byte bytes",
        "1/8": "bit bits",
        "1000": "kB kilobyte kilobytes",
        "1000000": "MB megabyte megabytes",
        "1000000000": "GB gigabyte gigabytes",
        "1000000000000": "TB terabyte terabytes",
        "1024": "KiB kibibyte kibibytes",
        "1048576": "MiB mebibyte mebibytes",
        "1073741824": "GiB gibibyte gibibytes",
        "1099511627776": "TiB tebibyte tebibytes",
    },
}
_DEGREES = {
    "K": ("K", "kelvin", "kelvins"),
    "C": ("C", "°C", "℃", "celsius", "degrees celsius"),
    "F": ("F", "°F", "℉", "fahrenheit", "degrees fahrenheit"),
}
# Factor and offset that turn degrees into kelvin.
_SCALES: dict[str, tuple[Fraction, Fraction]] = {
    "K": (Fraction(1), Fraction(0)),
    "C": (Fraction(1), Fraction("273.15")),
    "F": (Fraction(5, 9), Fraction("459.67") * Fraction(5, 9)),
}
_WORD = 4


class Unit:
    """One unit: its dimension, and the factor and offset that convert it to the base unit."""

    __slots__ = ("dimension", "factor", "offset")

    def __init__(self, dimension: str, factor: Fraction, offset: Fraction = Fraction(0)) -> None:
        """Store the dimension, factor and offset."""
        self.dimension = dimension
        self.factor = factor
        self.offset = offset


def _build_index() -> dict[str, Unit]:
    found: dict[str, Unit] = {}
    for dimension, rows in _TABLE.items():
        for factor, names in rows.items():
            found.update(dict.fromkeys(names.split(), Unit(dimension, Fraction(factor))))
    for scale, spellings in _DEGREES.items():
        found.update(dict.fromkeys(spellings, Unit("temperature", *_SCALES[scale])))
    return found


_UNITS = _build_index()


def find_unit(name: str) -> Unit | None:
    """Return the unit of a symbol (exact case) or of a word of four letters or more (any case); None if unknown."""
    name = name.strip()
    return _UNITS.get(name) or (_UNITS.get(name.lower()) if len(name) >= _WORD else None)


def is_unit_of(target: Unit, name: str) -> bool:
    """Return whether a name is a unit that can be converted into `target`."""
    found = find_unit(name)
    return found is not None and found.dimension == target.dimension


def convert_amount(text: str, target: Unit) -> Fraction | None:
    """Return the exact amount in `target` of a text like `1.5 kg`; None if the text is ambiguous.

    Args:
        text: one number (a point for decimals, no separators) and one unit of the target's dimension.
        target: the unit of the result.
    """
    match = _AMOUNT.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    if match is None or THOUSANDS.fullmatch(match["number"]):
        return None
    given = find_unit(match["unit"])
    if given is None or given.dimension != target.dimension:
        return None
    base = Fraction(match["number"]) * given.factor + given.offset
    return (base - target.offset) / target.factor
