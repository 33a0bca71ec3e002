"""Columns go through a batch together only where they come out as they do alone."""

import torch

from ritz.engine.columns import Columns


def test_columns_that_come_out_otherwise_together_are_multiplied_alone():
    def product(rows, into):
        into += 2 * rows + (len(rows) > 1)  # wrong for several

    columns, rows, total = Columns(4), torch.randn(7, 5), torch.zeros(7, 5)
    columns.add(product, rows, total)
    assert torch.equal(total, 2 * rows) and columns.width == 1


def test_columns_that_come_out_the_same_go_together():
    widths = []

    def product(rows, into):
        widths.append(len(rows))
        into += 2 * rows

    columns, rows, total = Columns(4), torch.randn(7, 5), torch.zeros(7, 5)
    columns.add(product, rows, total)
    assert torch.equal(total, 2 * rows) and widths == [1, 4, 3]
