import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.split import Split
from tests.errors import refuses

shares = st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.5])


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 300), shares, st.sampled_from([0.0, 0.1, 0.3]), st.integers(0, 99), st.booleans())
def test_every_row_is_in_one_part_and_groups_stay_together(count, valid, test, seed, grouped):
    groups = np.random.default_rng(seed).integers(0, 20, count) if grouped else None
    number = count if groups is None else len(np.unique(groups))
    wanted = {
        "valid": max(1, round(valid * number)) if valid else 0,
        "test": max(1, round(test * number)) if test else 0,
    }
    split = Split(valid=valid, test=test, seed=seed, by="g" if grouped else "")
    if number <= sum(wanted.values()):
        with refuses(number, key="data.split"):
            split.divide(count, groups)
        return
    parts = split.divide(count, groups)
    rows = np.concatenate(list(parts.values()))
    np.testing.assert_array_equal(np.sort(rows), np.arange(count))
    assert all((np.diff(part) > 0).all() for part in parts.values())
    assert list(parts) == ["train", *(name for name in wanted if wanted[name])]
    for name, size in wanted.items():
        mine = parts.get(name, np.zeros(0, int))
        assert len(mine if groups is None else np.unique(groups[mine])) == size
    if groups is not None:
        found = [set(groups[part].tolist()) for part in parts.values()]
        assert sum(map(len, found)) == number


def test_names_may_group_and_order_does_not_matter():
    names = np.array(["b", "a", "c", "a", "d", "e", "b", "f"])
    order = np.random.default_rng(0).permutation(len(names))
    split = Split(valid=0.3, test=0.2, by="who")
    one, other = split.divide(8, names), split.divide(8, names[order])
    for part in one:
        assert set(names[one[part]]) == set(names[order][other[part]])
    assert split.divide(8, names.astype(object)).keys() == one.keys()


def test_a_seed_draws_another_division():
    valid = [tuple(Split(seed=seed).divide(200)["valid"].tolist()) for seed in range(6)]
    assert len(set(valid)) == 6
    assert valid[0] == tuple(Split(seed=0).divide(200)["valid"].tolist())
    often = np.bincount(np.concatenate([Split(seed=seed).divide(50)["valid"] for seed in range(400)]), minlength=50)
    assert np.abs(often - 40).max() < 32  # 5 of 50, 400 times


def test_small_counts_and_mistakes():
    assert {name: len(rows) for name, rows in Split().divide(3).items()} == {"train": 1, "valid": 1, "test": 1}
    assert Split(valid=0, test=0).divide(1)["train"].tolist() == [0]
    with refuses(2, key="data.split", hint="data.split.valid"):
        Split().divide(2)
    with refuses(1, "`star`", key="data.split"):
        Split(by="star").divide(9, np.zeros(9))
    with refuses(0, key="data.split"):
        Split().divide(0)
    with refuses("0.6 + 0.4", key="data.split"):
        Split(valid=0.6, test=0.4).divide(10)


def test_every_group_is_judged_in_one_fold_and_classes_have_their_shares():
    label = np.repeat(["often", "now and then", "rarely"], [40, 21, 5])
    star = np.arange(66)[::-1]
    split = Split(valid=0.1, folds=5, stratify="label", by="star", seed=3)
    seen, chosen = [], []
    for fold in range(5):
        parts = split.model_copy(update={"fold": fold}).divide(66, star, label)
        assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(66))
        counts = {name: np.unique(label[rows], return_counts=True)[1].tolist() for name, rows in parts.items()}
        assert counts["test"] in ([4, 8, 1], [5, 8, 1])  # in the order of their names
        assert all(abs(found - wanted) <= 1 for found, wanted in zip(counts["valid"], [2, 4, 1]))
        assert 13 <= len(parts["test"]) <= 14
        seen += parts["test"].tolist()
        chosen.append(tuple(parts["valid"].tolist()))
    assert sorted(seen) == list(range(66))
    assert len(set(chosen)) == 5


def test_folds_keep_groups_whole_and_shares_may_be_stratified():
    star = np.repeat(np.arange(20), 3)
    folds = [Split(by="star", folds=4, fold=fold).divide(60, star)["test"] for fold in range(4)]
    assert [len(np.unique(star[rows])) for rows in folds] == [5] * 4
    assert all(len(rows) == 15 for rows in folds)
    label = np.arange(200) % 10 == 0
    for seed in range(5):
        parts = Split(valid=0.1, test=0.2, stratify="label", seed=seed).divide(200, None, label)
        assert {name: len(rows) for name, rows in parts.items()} == {"train": 140, "valid": 20, "test": 40}
        assert all(abs(label[rows].sum() - len(rows) / 10) <= 1 for rows in parts.values())


def test_a_table_is_divided_by_its_own_columns():
    table = {"star": np.repeat(np.arange(10), 2), "label": np.arange(20) % 2}
    split = Split(by="star", stratify="label")
    whole = split.of_table(table, 20)
    np.testing.assert_array_equal(whole["test"], split.divide(20, table["star"], table["label"])["test"])
    some = np.arange(0, 20, 2)
    np.testing.assert_array_equal(
        split.of_table(table, 10, some)["test"], split.divide(10, np.arange(10), np.zeros(10))["test"]
    )
    with refuses("star, label", "'lable'", key="data.split.stratify"):
        Split(stratify="lable").of_table(table, 20)


def test_mistakes_with_folds():
    with pytest.raises(ValueError, match=r"data\.split\.fold.* 3"):
        Split(folds=3, fold=3)
    with refuses(4, 3, key="data.split.folds"):
        Split(folds=4).divide(3)
    with refuses("label", key="data.split.stratify"):
        Split(stratify="label").divide(9)
    with refuses("test", key="data.split.folds"):
        Split(folds=3).less([], ["test.npz"])
    assert Split(folds=3).less(["valid.npz"], []).valid == 0
    assert Split(seed=5).lot == 5
    assert len({Split(folds=3, fold=fold).lot for fold in range(3)}) == 3
