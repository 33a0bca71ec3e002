"""Where a figure is computed."""

from ritz.papers.frame.figure import Context


def test_a_context_without_a_folder_sweeps_and_keeps_nothing():
    def doubled(config):
        return {"x": 2 * config["x"]}

    assert [r.scalars["x"] for r in Context().sweep(doubled, [{"x": 1}, {"x": 4}])] == [2, 8]
