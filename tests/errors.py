"""Assert that a block is refused by the fields of its error, not by its English."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath

import pytest

from sciformer.errors import UserError


@contextmanager
def refuses(
    *mentions: object,
    key: str | None = None,
    file: str | PathLike[str] | None = None,
    line: int | None = None,
    hint: str | None = None,
    error: type[UserError] = UserError,
) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expect a `UserError` from the block.

    mentions   the user's own words in it: names, values, paths, counts; never a sentence of ours
    key        the recipe key or option it must name
    file       the file or folder it must name; line, the line in it
    hint       an option, key or command that its hint must offer
    """
    with pytest.raises(error) as caught:
        yield caught
    found = caught.value
    if key is not None:
        assert found.key == key, f"the error names the key {found.key}: {found}"
    if file is not None:
        assert found.file == fspath(file), f"the error names the file {found.file}: {found}"
    if line is not None:
        assert found.line == line, f"the error names line {found.line}: {found}"
    if hint is not None:
        assert hint in found.hint, f"the hint is {found.hint!r}"
    for mention in mentions:
        assert str(mention) in str(found), f"{mention!r} is not in: {found}"
    del caught, found  # whose frames hold this one: files that they opened would stay open
