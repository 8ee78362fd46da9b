"""The side of a measured row, as in crates/roofcast-plan/src/validate/split.rs: rows that may be read one by one, that judge, or that teach a fit."""

GROUP = ("model", "hardware", "engine", "weights")
LOOK, TEACHES, PLACES = 250, 625, 1000


def fnv1a(text):
    """The FNV-1a hash of a text, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def place(row):
    """The hash of a row's group, as a number from 0 to 999."""
    return fnv1a(" | ".join(row[key] for key in GROUP).lower()) % PLACES


def judges(row):
    """True if the row judges, so that it is shown only as a part of a table."""
    return place(row) >= LOOK


def teaches(row):
    """True if a fit may use the row."""
    return place(row) < TEACHES
