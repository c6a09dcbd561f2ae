"""Things by their words and centres, for the tests of scenes."""

from sciformer.domains.images.scenes.rendering import box_of
from sciformer.domains.images.scenes.things import Thing, parse_kind

SIDE = 64


def thing(words, x, y):
    kind = parse_kind(words.split())
    return Thing(kind, x, y, box_of(kind, x, y, SIDE))
