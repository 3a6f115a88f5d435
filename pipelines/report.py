"""report: every table of the study in one page, report/report.html, with a Markdown twin that is also printed."""

from __future__ import annotations

from pipelines.pages import drawing, page
from pipelines.pages.tables.encoders import geometry_table, similarity_table, trained_table
from pipelines.pages.tables.images import image_text_table
from pipelines.pages.tables.leakage import attributes_table, inversion_table
from pipelines.pages.tables.study import published_table, stages_table
from pipelines.pages.tables.translation import corpora_table, translation_table
from pipelines.runtime import stage, store, track
from pipelines.study import params

TABLES = (
    corpora_table, translation_table, similarity_table, trained_table, geometry_table, attributes_table, inversion_table,
    image_text_table, published_table, stages_table,
)  # fmt: skip


def report(name: str, row: None, study: params.Study, run: track.Run) -> None:
    """Draw every picture, write and print the page; keep them with the MLflow run."""
    drawing.FOLDER.mkdir(parents=True, exist_ok=True)
    drawing.draw(study)  # before the tables, which show what is drawn
    sections = ([f"# {study.study}", "", study.about], *(section for lines_of in TABLES if (section := lines_of(study))))
    markdown = "\n\n".join("\n".join(lines) for lines in sections) + "\n"
    path = page.write(store.REPORT / "report.html", f"{study.study}: universal geometry", markdown)
    for file in (path, path.with_suffix(".md")):
        run.artifact(file)
    for picture in sorted(drawing.FOLDER.glob("*.png")):
        run.artifact(picture, "pictures")
    print(markdown)


if __name__ == "__main__":
    stage.main(report)
