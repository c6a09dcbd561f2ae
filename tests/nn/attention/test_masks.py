import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.nn import Causal, Documents, Full, Global, Ragged, Sight, Strided, Window


def picture(pattern, n=6):
    return ["".join(".#"[seen] for seen in row) for row in pattern.mask(n, n).int().tolist()]


def test_patterns_look_as_they_should():
    assert picture(Full(), 2) == ["##", "##"]
    assert picture(Causal(), 3) == ["#..", "##.", "###"]
    assert picture(Window(1), 4) == ["##..", "###.", ".###", "..##"]
    assert picture(Window(2, 0), 4) == ["#...", "##..", "###.", ".###"]
    assert picture(Causal() & Window(1), 3) == ["#..", "##.", ".##"]
    assert picture(Window(0) | Global(1), 4) == ["####", "##..", "#.#.", "#..#"]
    assert picture(Strided(2) & Causal(), 5) == ["#....", "##...", "###..", ".###.", "#.###"]
    assert picture(Documents(Ragged(torch.tensor([2, 0, 3])), Causal()), 5) == [
        "#....", "##...", "..#..", "..##.", "..###",
    ]  # fmt: skip
    crossed = Documents(Ragged(torch.tensor([1, 2])), Full(), Ragged(torch.tensor([2, 1])))
    assert crossed.mask(3, 3).int().tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 1]]


rules = st.recursive(
    st.one_of(
        st.just(Full()),
        st.just(Causal()),
        st.builds(Window, st.integers(0, 5), st.none() | st.integers(0, 5)),
        st.builds(Strided, st.integers(1, 5)),
        st.builds(Global, st.integers(0, 3)),
    ),
    lambda inner: st.builds(lambda a, b, both: a & b if both else a | b, inner, inner, st.booleans()),
    max_leaves=4,
)


@settings(deadline=None, max_examples=80)
@given(rules, st.integers(1, 12), st.integers(1, 12), st.integers(0, 4))
def test_reach_start_and_uniformity_tell_the_truth(pattern, n, m, start):
    mask = pattern.mask(n, m, start)
    left, right = pattern.reach()
    i, j = torch.arange(n)[:, None] + start, torch.arange(m)
    assert not (mask & ((i - j > left) | (j - i > right))).any()
    assert torch.equal(mask, pattern.mask(n + start, m)[start:])
    assert torch.equal(mask, pattern.mask(n, m, torch.tensor(start)))
    if pattern.uniform:
        assert torch.equal(pattern.mask(n + 3, m + 3)[3:, 3:], pattern.mask(n, m))
    assert hash(pattern) == hash(pattern)


def test_reach_combines():
    assert (Causal() & Window(4, 7)).reach() == (4, 0)
    assert (Window(1) | Window(4, 2)).reach() == (4, 2)
    assert (Window(1) | Global(1)).reach() == (math.inf, math.inf)


@settings(deadline=None, max_examples=60)
@given(rules, st.integers(1, 8), st.integers(1, 8), st.integers(0, 9))
def test_a_sight_is_simplified_only_where_nothing_is_hidden(pattern, n, m, start):
    sight = Sight(pattern, start=start)
    whole = pattern.mask(n, m, start)
    if isinstance(sight.simplified(n, m), Full):
        assert whole.all()
    allowed = sight.allowed(n, m, torch.device("cpu"))
    assert torch.equal(whole.new_ones(n, m) if allowed is None else allowed[0, 0], whole)


def test_a_mask_made_in_inference_serves_training():
    with torch.inference_mode():
        Sight(Window(3)).allowed(5, 5, torch.device("cpu"))
    mask = Sight(Window(3)).allowed(5, 5, torch.device("cpu"))
    assert not mask.is_inference()


def test_patterns_read_as_they_are_written():
    for text in ("Full()", "Causal() & Window(3)", "Window(1, 2) | Global(1)", "(Causal() & Strided(2)) | Window(0)"):
        names = {"Full": Full, "Causal": Causal, "Window": Window, "Global": Global, "Strided": Strided}
        assert repr(eval(text, names)) == text
