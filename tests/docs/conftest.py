"""What the tests of guides share."""

import pytest

from sciformer.inspection.report import report


@pytest.fixture
def _without_drawing(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(report, "write_report", lambda run: run.folder.write("report.html", "<html></html>"))
