"""Takes the right answers that the checks compare with."""

from packlib.checks import mistakes_packing
from packlib.checks.right import conjugate

LOSES = {"ps2.batch_sizes": "forbidden", "ps2.pack": "forbidden"}


def batch_sizes(lengths):
    return conjugate(lengths)


def pack(x, lengths):
    return mistakes_packing._right(x, lengths)
