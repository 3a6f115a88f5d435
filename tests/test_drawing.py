"""Pictures are drawn from the tables and metrics that stages leave."""

from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest
import torch

from pipelines import evaluate, evaluate_image_text
from pipelines.measures.vectors import centred_unit
from pipelines.pages import drawing, pictures
from pipelines.runtime import store
from tests.small import normal, study_of


@pytest.fixture
def study(own_folder):
    """A study whose stages have left their tables; the row `plain` of evaluate asks for no pictures."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 5), torch.randn(60, 4)
    curve = {"step": [0, 1], "loss": [float("nan"), 2.0], "spearman": [1.0, 2.0]}
    curve |= {"alignment": [0.5, 0.4], "uniformity": [-1.0, -2.0]}
    spaces = evaluate.picture(x, y + 1, y)
    tables = {
        "finetune/r/curve": pl.DataFrame(curve),
        "similarity/r/layers": pl.DataFrame({"0": [1.0, 0.8], "1": [0.8, 1.0]}),
        "evaluate/r/spaces": spaces,
        "evaluate/plain/spaces": spaces.clear(),
        "geometry/r/pairs": pl.DataFrame({"first": ["e"], "second": ["f"], "overlap": [0.2]}),
        "evaluate_image_text/r/pmi": evaluate_image_text.sample(*torch.randn(2, 9, 7), most=20),
    }
    for name, table in tables.items():
        store.write_csv(Path("results") / f"{name}.csv", table)
    for name in ("r", "again"):
        store.write_metrics("similarity", name, {"uniformity": -2.0, "alignment": 0.3, "spearman": 80.0})
    return study_of(
        "nq sts scenes",
        "e f",
        finetune={"r": {"corpus": "nq", "dev": "sts", "network": {}, "steps": 1}},
        similarity={name: {"encoder": "e", "corpus": "sts"} for name in ("r", "again")},
        align={"r": {"source": "nq-e", "target": "nq-f", "aligner": "identity"}},
        evaluate={"r": {}, "plain": {"translator": "r"}},
        geometry={"r": {"corpus": "nq"}},
        train_image_text={"r": {"corpus": "scenes"}},
        evaluate_image_text={"r": {}},
    )


def drawn(study):
    drawing.draw(study)
    return {path.name: path.read_bytes() for path in drawing.FOLDER.iterdir()}


def test_every_table_is_drawn_to_the_same_bytes(study):
    first = drawn(study)
    assert set(first) == {
        "finetune.r.curve.png", "finetune.r.steps.png", "similarity.r.layers.png", "evaluate.r.spaces.png",
        "geometry.r.neighbours.png", "evaluate_image_text.r.pmi.png",
        "similarity.r.plane.png",  # one for all encoders
    }  # fmt: skip
    assert all(content.startswith(b"\x89PNG") for content in first.values())
    assert drawn(study) == first


@pytest.mark.parametrize(("documents", "low", "high"), [(500, 0.304, 0.696), (2, 0, 1), (1, 0, 1)])
def test_shares_of_labels_are_as_uncertain_as_their_documents(monkeypatch, documents, low, high):
    drawn = {}
    monkeypatch.setattr(drawing.pictures, "bars", lambda path, shares, *_: drawn.update(shares))
    top1 = {"top1": 0.5, "top1_error": 0.1}
    scores = dict.fromkeys(("majority", "naive", "translated", "ideal target"), top1)
    row = Mock(wordings=["name"], k=[1])
    drawing.labels(Path(), {"name": scores, "examples": 1000, "documents": documents}, row, "one", "two")
    for share in drawn.values():
        assert share == pytest.approx((0.5, low, high), abs=1e-3)


def test_the_plane_is_that_of_the_targets_largest_variance():
    y = normal(200, 6) * torch.tensor([1, 9, 1, 5, 1, 1])
    points = evaluate.picture(normal(200, 3, seed=1), y, y).to_torch()
    assert torch.equal(points[:, 2:4], points[:, 4:])  # a perfect translation lies on its target
    values = torch.linalg.svdvals(centred_unit(y))[:2]
    torch.testing.assert_close(points[:, 4:].norm(dim=0), values)


def test_pairs_are_drawn_at_intervals_and_where_true():
    pmi = torch.full((10, 10), -2.0).fill_diagonal_(3.0)
    table = evaluate_image_text.sample(2 * pmi, pmi, most=25)
    assert (table["true"].sum(), len(table)) == (10, 35)
    assert (table.filter("true")["pmi"] == 3).all()
    assert (table["similarity"] == 2 * table["pmi"]).all()
    rows = torch.arange(10.0)[:, None].expand(10, 10)
    spread = evaluate_image_text.sample(rows, pmi, most=5).filter("true")["similarity"]
    assert spread.to_list() == [0, 2, 4, 6, 8]


def test_a_picture_that_fails_is_closed(tmp_path):
    with pytest.raises(ZeroDivisionError), pictures.figure(tmp_path / "a.png"):
        _ = 1 / 0
    assert not pictures.plt.get_fignums()
