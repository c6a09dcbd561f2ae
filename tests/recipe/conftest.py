"""Files of the tests of recipes and plugins."""

import pytest


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="my.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_file
