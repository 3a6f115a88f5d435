"""The report's page: one file with its pictures; texts of others are shown as they are; published numbers."""

import base64
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from pipelines.pages import page, pictures
from pipelines.pages.tables import escaped, table
from pipelines.pages.tables.study import published_table
from pipelines.report import beginning
from pipelines.runtime import intact, store
from pipelines.study import params
from tests.small import ROOT, refusal, study_of, write_report, write_yaml

FIT = {"source": "c-e", "target": "c-f", "aligner": "identity"}
OUTDATED = "`dvc repro`: numbers of these stages have other settings or inputs: "


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "page" / "a.png"
    with pictures.figure(path) as (_, ax):
        ax.plot([0, 1])
    return path


def test_a_page_is_one_file_beside_its_markdown(picture):
    markdown = "# T\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n![a picture](a.png)\n"
    path = page.write(picture.with_name("p.html"), "T & U", markdown)
    text = path.read_text(encoding="utf-8")
    assert base64.b64encode(picture.read_bytes()).decode() in text
    assert "<div class='table'><table>" in text  # it scrolls in a box of its own
    assert "<title>T &amp; U</title>" in text
    assert path.with_suffix(".md").read_text(encoding="utf-8") == markdown


def test_a_column_s_title_links_to_its_definition(monkeypatch):
    monkeypatch.chdir(ROOT)
    for folder, up in (("report", ".."), ("report/audit", "../..")):
        html = page.rendered("t", "| FOSCTTM | nothing |\n|---|---|\n| 0 | 1 |\n", Path(folder))
        link = f"<th><a href='{up}/docs/glossary.md#foscttm'>FOSCTTM</a></th><th>nothing</th>"
        assert link in html.replace("\n", "")


@pytest.mark.parametrize("source", ["../secret.png", "{folder}/secret.png", "link.png", "http://x/a.png"])
def test_a_page_embeds_nothing_from_outside_its_folder(picture, source):
    secret = picture.parents[1] / "secret.png"
    secret.write_bytes(picture.read_bytes())
    picture.with_name("link.png").symlink_to(secret)
    html = page.rendered("t", f"![words]({source.format(folder=secret.parent)})", picture.parent)
    assert "words" in html
    assert "<img" not in html
    assert "base64" not in html


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "a | b",
        "`code` **bold**",
        "[x](http://y)",
        "line\nline",
        "\\",
    ],
)
def test_a_foreign_text_is_one_cell_as_it_is(tmp_path, text):
    markdown = "\n".join(table(["text", "next"], [[escaped(text), "here"]]))
    tokens = MarkdownIt("commonmark", {"html": False}).enable("table").parse(markdown)
    cells = [t for t in tokens if t.type == "inline"]
    assert [t.content for t in cells][-1] == "here"
    assert {child.type for t in cells for child in t.children} <= {"text", "text_special"}
    assert "".join(child.content for child in cells[2].children) == " ".join(text.split())
    assert escaped("word " * 200, most=20) == "word word word word…"
    assert "<script>" not in page.rendered("t", markdown, tmp_path)


@pytest.mark.parametrize("text", ["![k]({file})", "x\n\n# forged", "1. forged", "- forged", "> x", "x\n==="])
def test_a_study_s_own_texts_forge_nothing_in_the_report(picture, own_folder, text):
    text = text.format(file=picture)
    published = {"row": {"what": text, "value": 1, "by": text}}
    study = params.Study.model_validate({"study": text, "about": text, "published": published})
    lines = [*beginning(study, []), *published_table(study)]
    html = page.rendered("t", "\n\n".join(lines[:2]) + "\n\n" + "\n".join(lines[2:]), picture.parent)
    assert html.count("<h1") == html.count("<h2") == html.count("<table") == 1
    assert not any(tag in html for tag in ("<img", "<li", "<blockquote"))


def test_published_numbers_stand_beside_ours(own_folder):
    store.write_metrics("evaluate", "row", {"top1": 0.25, "raw_top1": 0.5, "deep": {"er": 3}})
    paper = {"what": "top-1 of vec2vec", "by": "table 2"}
    rows = {
        "raw": paper | {"value": 0.99, "of": "evaluate.row.raw_top1"},
        "deep": paper | {"value": 0.98, "of": "evaluate.row.deep.er"},
        "gone": paper | {"value": 1, "of": "evaluate.row.nothing.there"},
        "wrong": paper | {"value": 2, "of": "evaluate.row.deep.err"},
        "later": paper | {"value": 3, "of": "align.row.verdict"},
        "apart": paper | {"value": 0.97, "of": "evaluate.row.top1", "comparable": False},
    }
    fits = {"row": {"source": "passages-one", "target": "passages-two", "aligner": "identity"}}
    study = study_of("passages", "one two", align=fits, evaluate={"row": {}}, published=rows)
    beside, apart = "\n".join(published_table(study)).split("### For orientation: other data")
    lines = beside.strip().splitlines()[-5:]
    assert [[cell.strip() for cell in line.split("|")][2:6] for line in lines] == [
        ["0.99", "table 2", "0.5", "0.25"],  # its centred twin beside it
        ["0.98", "table 2", "3", ""],
        ["1", "table 2", "no measure 'nothing.there'", ""],
        ["2", "table 2", "no measure 'deep.err'; did you mean 'deep.er'?", ""],
        ["3", "table 2", "not measured", ""],
    ]
    assert "0.97" in apart
    assert "0.25" not in apart


@pytest.mark.parametrize(
    ("locked", "made", "told"),
    [
        ({"corpora.c": {"rows": 9}, "corpora.c.rows": 9, "corpora": {"c": {"rows": 9}}}, "1", False),
        ({"corpora.c": {"rows": 8}}, "1", True),
        ({"corpora.c.rows": 8}, "1", True),
        ({"corpora": {}}, "1", True),
        ({"align.c": {}}, "1", True),
        ({}, "2", True),
    ],
)
def test_numbers_of_other_settings_or_inputs_are_told(own_folder, locked, made, told):
    store.write_metrics("collect", "c", {})
    write_yaml("params.yaml", {"corpora": {"c": {"rows": 9}}})
    ran = {"params": {"params.yaml": locked}, "deps": [{"path": "a", "md5": "1"}]}
    stages = {"collect@c": ran, "a": {"outs": [{"path": "a", "md5": made}]}}
    write_yaml("dvc.lock", {"stages": stages})
    assert ("inputs: collect@c**" in "\n".join(beginning(study_of("c", "e"), []))) == told


def lock(stages):
    """Write dvc.lock and metrics of stages: (output, input, settings) of each. All bytes are as DVC made
    them.
    """
    written = {}
    for name, (out, dep, settings) in stages.items():
        files = {"outs": [{"path": out, "md5": "1"}], "deps": [{"path": dep, "md5": "1"}]}
        written[name] = files | {"params": {"params.yaml": settings}}
        store.write_metrics(*name.split("@"), {})
    write_yaml("dvc.lock", {"stages": written})


def test_stages_that_read_what_an_outdated_one_makes_are_told(own_folder):
    fits = {c: {"source": f"{c}-e", "target": f"{c}-f", "aligner": "identity"} for c in "cd"}
    study = study_of("c d", "e f", align=fits, evaluate={"c": {}, "d": {}}, geometry={"d": {}})
    write_yaml("params.yaml", {"corpora": {"c": {"rows": 9}, "d": {}}})
    stages = {"collect@old": ("data/translators/d/old", "old.csv", {"corpora.old": {}})}  # of another study
    for name, locked in (("c", {"rows": 8}), ("d", {})):
        stages |= {
            f"collect@{name}": (f"data/corpora/{name}.parquet", f"{name}.csv", {f"corpora.{name}": locked}),
            f"embed@{name}-e": (f"data/embeddings/{name}-e.arrow", f"data/corpora/{name}.parquet", {}),
            f"align@{name}": (f"data/translators/{name}", f"data/embeddings/{name}-e.arrow", {}),
        }
    stages["evaluate@c"] = "c", "data/translators/c/part", {}
    stages["evaluate@d"] = "d", "data/translators/d", {}
    stages["geometry@d"] = "g", "data/embeddings", {}  # all of them
    lock(stages)
    told = "collect@c, embed@c-e, geometry@d, align@c, evaluate@c"
    assert f"settings or inputs: {told}**" in "\n".join(beginning(study, []))


def test_a_stage_that_left_the_study_does_not_outdate_what_reads_its_output(own_folder):
    outs = {"align@j": "1", "align_jointly@j": "2"}
    stages = {stage: {"outs": [{"path": "t", "md5": md5}]} for stage, md5 in outs.items()}
    write_yaml("dvc.lock", {"stages": stages | {"evaluate@j": {"deps": [{"path": "t", "md5": "1"}]}}})
    assert intact.outdated(["align@j", "evaluate@j"]) == []


def test_results_that_do_not_fit_their_changed_row_are_no_traceback(own_folder):
    methods = ("naive", "translated", "majority", "ideal target")
    scores = {method: {"top1": 0.5, "top1_error": 0.1} for method in methods}
    row = {"translator": "a", "corpus": "c", "k": [3]}
    study = study_of("c", "e f", align={"a": FIT}, attributes={"a": row})
    write_yaml("params.yaml", {"attributes": {"a": {"k": [3]}}})
    for k, fault in (
        (3, pytest.raises(KeyError, match="top3")),
        (1, refusal(f"^run {OUTDATED}attributes@a$")),
    ):
        lock({"attributes@a": ("a", "b", {"attributes.a": {"k": [k]}})})
        store.write_metrics("attributes", "a", {"name": scores, "examples": 9, "documents": 9})
        with fault:  # that of the code is a traceback
            write_report(study)
