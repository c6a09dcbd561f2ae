"""Commands of a guide, made to take seconds."""


def changed(words, changes):
    """A command with some options set, whatever the guide has for them."""
    for name, value in changes.items():
        if f"--{name}" in words:
            words = [*words[: (at := words.index(f"--{name}"))], *words[at + 2 :]]
        words = [*words, f"--{name}", str(value)]
    return words
