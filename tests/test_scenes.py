"""Scenes whose p(image, caption) is known, and images of the user's own."""

import io

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import ExifTags, Image

from pipelines.contrastive.pixels import pixels
from pipelines.corpora.core import collect
from pipelines.corpora.kinds import images
from pipelines.corpora.kinds.scenes import synthetic as scenes
from pipelines.corpora.sources import path as source
from pipelines.runtime import store
from pipelines.study import PathCorpus
from tests.hostile import png as flat_png
from tests.small import refusal
from tests.test_synthetic import row


def png(colour=(255, 0, 0), size=(8, 8), mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, size, colour).save(file, "PNG")
    return file.getvalue()


def corpus(path="a.parquet", **columns):
    """Write a table of images if there are columns, and read it."""
    if columns:
        pl.DataFrame(columns).write_parquet(path)
    return images.rows(PathCorpus(source="path", kind="images", path=path), source)


GRIDS = pytest.mark.parametrize("grid", [2, 3])


@GRIDS
def test_scenes_are_a_corpus_and_the_same_each_time(grid):
    corpus = row("scenes", 60, test=10, grid=grid)
    frame = collect(corpus)
    store.check_corpus("scenes", frame)
    assert frame.equals(collect(corpus))
    assert frame["captions"].list.len().unique().to_list() == [scenes.CAPTIONS]
    image = frame["image"][0]
    assert Image.open(io.BytesIO(image)).size == (16 * grid, 16 * grid)
    assert pixels(image, 32).shape == (3, 32, 32)
    least = scenes.pmi(frame["scene"].to_list(), ["a large blue cross"]).min()
    assert least == pytest.approx(np.log(scenes.NOISE))


@GRIDS
def test_the_marginal_is_the_mean_over_scenes(grid):
    rng = np.random.default_rng(1)
    said = ["two objects", "a red square at the top left", "a circle above a square", "a cross and a cross"]
    drawn = [scenes.captions(scenes.draw_scene(grid, rng)) for _ in range(3000)]
    q = np.array([[share.get(text, 0) for text in said] for share in drawn])
    error = np.abs(q.mean(0) - [scenes.marginal(grid)[text] for text in said])
    assert (error < 3.5 * q.std(0) / np.sqrt(3000)).all()


def noisy(share, text):
    return (1 - scenes.NOISE) * share + scenes.NOISE * scenes.marginal(2)[text]


def test_captions_are_drawn_by_their_probability():
    rng, scene = np.random.default_rng(2), (("small", "red", "circle", (0, 0)),)
    drawn = np.array([scenes.draw_caption(scene, 2, rng) == "one object" for _ in range(4000)])
    p = noisy(scenes.captions(scene)["one object"], "one object")
    assert abs(drawn.mean() - p) < 4 * np.sqrt(p * (1 - p) / 4000)


def test_pmi_is_log_of_conditional_over_marginal():
    q = {"one object": 0.1, "a circle": 0.9 / 8}
    [pmi] = scenes.pmi(['{"grid": 2, "things": [["small", "red", "circle", [2, 0]]]}'], list(q))
    assert pmi == pytest.approx([np.log(noisy(q[text], text) / scenes.marginal(2)[text]) for text in q])


def test_faulty_images_are_skipped_and_counted(own_folder, capsys):
    given = [png(), png((0, 0, 255)), png()[:40], None, png(), png()]
    captions = ["red", " ", "cut", "none", "red", "warm"]
    frame = corpus(jpg=given, caption=captions, label=['["cat", "dog"]'] * 5 + [None])
    assert frame["labels"].to_list() == [["cat", "dog"], []]
    assert frame["text"].to_list() == ["red", "warm"]
    twice = corpus(jpg=[png()] * 2, caption=[["red", "red"], ["red", "warm"]])
    assert twice["captions"].to_list() == [["red"], ["warm"]]
    assert corpus(jpg=[png()], caption=[b"red"])["captions"].to_list() == [["red"]]
    assert corpus(jpg=[png()], caption=["red"], label=[None])["labels"].dtype == pl.List(pl.String)
    assert frame["document"].n_unique() == 1  # of one image
    assert "1 caption empty, 1 image corrupt, 1 image missing, 1 repeated" in capsys.readouterr().out


def test_no_image_is_on_both_sides_of_a_split_of_the_source(own_folder, capsys):
    """Whatever its file: other bytes may hold the same pixels."""
    file = io.BytesIO()
    sideways = Image.Exif()
    sideways[ExifTags.Base.Orientation] = 6
    Image.open(io.BytesIO(png())).save(file, "WEBP", lossless=True, exif=sideways)
    columns = {"image": [png(), png((0, 0, 255)), file.getvalue()], "text": ["red", "blue", "warm"]}
    assert corpus(**columns, split=[0, 0, 1])["split"].to_list() == ["0", "0", "1"]
    corpus(**columns, split=["train", "train", "test"])
    frame = collect(PathCorpus(source="path", kind="images", path="a.parquet"))
    assert frame.select("text", "split").rows() == [("blue", "train"), ("warm", "test")]
    assert "1 train texts of documents in another split dropped" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_program_or_a_bomb_is_no_image(own_folder, monkeypatch, capsys):
    called = []
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: called.append("ran"))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda _: called.append("decoded"))
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    hostile = [postscript, flat_png(13_000, 13_000), flat_png(20_000_000, 1)]
    says = ["cannot identify image file", "13000 x 13000 pixels are too many, or too uneven", "are too many"]
    for image, line in zip(hostile, says, strict=True):
        with pytest.raises(ValueError, match=f"cannot be read: .*{line}"):
            pixels(image, 8)
    with refusal("no usable image"):
        corpus(image=[*hostile[:2], flat_png(20_000, 20_000, b"x")], text=["a", "b", "c"])
    assert "1 image corrupt, 2 image too large" in capsys.readouterr().out  # Pillow refuses the largest
    assert not called


def test_a_table_without_images_is_one_line(own_folder):
    with refusal("there is no column 'image'"):
        corpus(x=[1])
    with refusal("not a parquet file"):
        corpus(".")
    with refusal(r"the column for text is Struct\({'raw': String}\), not text"):
        corpus(image=[png()], text=[{"raw": "a"}])
    with refusal("columns that cannot be text"):
        corpus(image=[png()], text=[b"\xff"])
    with refusal("columns: image, labels, text, id, split can be named, not 'caption'"):
        collect(PathCorpus(source="path", kind="images", path="a.parquet", columns={"caption": "text"}))
    twice = pa.table([pa.array([png()]), pa.array(["a"]), pa.array(["b"])], ["image", "text", "text"])
    pq.write_table(twice, "a.parquet")
    with refusal("column appears more than once"):
        corpus()


def test_a_photo_is_turned_upright_and_damaged_exif_is_ignored():
    photo, exif = Image.new("RGB", (16, 8)), Image.Exif()
    photo.paste("blue", (0, 0, 8, 8))
    exif[ExifTags.Base.Orientation] = 6  # its left is the top

    def saved(**more):
        photo.save(file := io.BytesIO(), "PNG", **more)
        return pixels(file.getvalue(), 8)

    assert saved(exif=exif).equal(saved().transpose(1, 2))
    assert saved(exif=b"Exif\0\0damaged").equal(saved())


def test_sixteen_bits_of_grey_are_not_cut(own_folder):
    images = []
    for value in (257 * 90, 257 * 200):
        Image.fromarray(np.full((8, 8), value, np.uint16)).save(file := io.BytesIO(), "PNG")
        images.append(file.getvalue())
    assert [pixels(image, 8).unique().tolist() for image in images] == [[90], [200]]
    assert corpus(image=images, text=["dark", "light"])["document"].n_unique() == 2


def test_transparency_is_white_and_sides_are_cut():
    assert pixels(png((0, 0, 0, 0), (8, 20), "RGBA"), 8).min() == 255
    assert pixels(png(size=(40, 10)), 16).shape == (3, 16, 16)
