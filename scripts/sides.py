"""The side of a measured row, as crates/roofcast/src/validate/split.rs has it: which rows may be looked at, judge, or teach a fit."""

GROUP = ("model", "hardware", "engine", "weights")
LOOK, TEACHES, PLACES = 250, 625, 1000


def fnv1a(text):
    """FNV-1a of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def place(row):
    """The place of a row's group from 0 to 999."""
    return fnv1a(" | ".join(row[key] for key in GROUP).lower()) % PLACES


def judges(row):
    """Whether the row is read as a part of a table only."""
    return place(row) >= LOOK


def teaches(row):
    """Whether a fit may see the row."""
    return place(row) < TEACHES
