"""Medians, ratios, quantiles, and how figures are shown."""

import pytest

from reach_worker.bench.live.figures import middle, middle_ratio, quantile, rounded
from reach_worker.bench.live.program import lines


def test_the_median_of_ratios_is_not_the_ratio_of_medians() -> None:
    # The machine was twice as slow in the second round: each ratio is 0.5 all the same.
    assert middle_ratio([100.0, 50.0, 100.0], [200.0, 100.0, 200.0]) == 0.5
    assert middle_ratio([100.0, 50.0, 90.0], [100.0, 100.0, 100.0]) == 0.9
    with pytest.raises(ValueError, match="shorter"):
        middle_ratio([1.0, 2.0], [1.0])


def test_quantiles_are_nearest_ranks() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [quantile(values, share) for share in (0.0, 0.5, 0.99, 0.999, 1.0)] == [1, 50, 99, 100, 100]
    assert quantile([7.0], 0.5) == 7.0


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, 0.0), (123456.0, 123500.0), (0.00123456, 0.001235), (-2.34567, -2.346), (999.96, 1000.0)],
)
def test_four_significant_digits(value: float, shown: float) -> None:
    assert rounded(value) == shown
    assert middle([value, value, value]) == shown


def test_every_figure_has_a_line_with_its_place() -> None:
    figures = {"a": 1500.0, "b": {"c": None, "d": [1, 2]}, "e": [], "f": "x"}
    assert list(lines(figures)) == [
        ("a", "1,500.0"),
        ("b.c", "–"),
        ("b.d", "1, 2"),
        ("e", "–"),
        ("f", "x"),
    ]
