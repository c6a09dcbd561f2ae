import numpy as np
import pytest

from sciformer.domains.text.simulate.recall import QUESTION, Recall


def test_a_sequence_is_value_noise_and_question():
    table = Recall(lag=5, symbols=4, number=200, seed=1).make()
    assert {len(column) for column in table.values()} == {200}
    for text, value, lag in zip(table["text"], table["value"], table["lag"]):
        assert (text[0], text[-1], len(text), lag) == (value, QUESTION, 7, 5)
        assert set(text[1:-1]) <= set("abcd")
    assert set(table["value"]) == set("ABCD")


@pytest.mark.parametrize("lag", [0, 1, 40])
def test_the_noise_knows_nothing(lag):
    table = Recall(lag=lag, symbols=3, number=6000).make()
    values, counts = np.unique(table["value"], return_counts=True)
    assert values.tolist() == ["A", "B", "C"]
    assert abs(counts - 2000).max() < 200
    for place in {1, lag} - {0} if lag else ():
        noise = np.array([text[place] for text in table["text"]])
        for value in "ABC":  # each kind of noise is alike often after each value
            share = np.unique(noise[table["value"] == value], return_counts=True)[1] / counts[0]
            assert abs(share - 1 / 3).max() < 0.05
