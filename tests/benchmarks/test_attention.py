"""The kernel benchmark counts right: the worst cell, the right side as the base, all processes together."""

import pytest
import torch

import attention


def cells(slow):
    """Cells of two processes in which our side takes `slow[pattern]` times the raw second, at 16k tokens."""
    for process in (0.0, 0.5):
        for pattern, ratio in slow.items():
            seconds = {"ours": [ratio] * 3, "raw": [1.0, 1.0 + process, 1.0], "full": [8.0] * 3}
            yield [
                {"pattern": pattern, "n": 16384, "direction": d, "side": s, "seconds": t, "memory": 7.0}
                for d in ("forward", "training")
                for s, t in seconds.items()
                if s != "full" or pattern == "window"
            ]


def test_the_worst_cell_is_the_figure():
    table, rows = attention.summarise(list(cells({"full": 1.01, "causal": 1.04, "window": 0.25})), "cpu")
    found = {row["id"]: row for row in rows}
    assert found["attention_cpu.overhead"]["value"] == pytest.approx(4)
    assert found["attention_cpu.overhead"]["cells"] == 4
    assert found["attention_cpu.overhead"]["processes"] == 2
    assert found["window_cpu.16k.ratio_dense"]["value"] == 4
    assert found["window_cpu.16k.ratio_full"]["value"] == 32
    assert (
        found["attention_cpu.causal.16k.training"] | {"ratio_raw": 1.04, "raw_ms": 1000, "value": 1040}
        == found["attention_cpu.causal.16k.training"]
    )
    assert len(table) == 14
    assert "attention_gpu.overhead" not in found


def test_a_cell_compares_the_same_numbers(monkeypatch):
    monkeypatch.setitem(attention.SHAPES, "cpu", (1, 1, 8))
    rows = attention.cell("cpu", "window", 300)
    assert {(row["direction"], row["side"]) for row in rows} == {
        (d, s) for d in ("forward", "training") for s in ("ours", "raw", "full")
    }
    assert all(len(row["seconds"]) == 60 and min(row["seconds"]) > 0 for row in rows)
    monkeypatch.setattr(attention, "attend", lambda q, k, v, sight: torch.zeros_like(q) + 0 * q)
    with pytest.raises(AssertionError, match="window at 300 differs"):
        attention.cell("cpu", "window", 300)
