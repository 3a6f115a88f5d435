"""report: what the study found, then every table, in one page: report/report.html, its Markdown twin report/report.md, and the
findings alone in report/findings.md. The same results give the same bytes: what a run took stands in report/stages.md."""

from __future__ import annotations

import textwrap
from pathlib import Path

from pipelines.pages import drawing, headlines, page
from pipelines.pages.findings import Finding, findings
from pipelines.pages.tables import escaped
from pipelines.pages.tables.encoders import geometry_table, similarity_table, trained_table
from pipelines.pages.tables.images import image_text_table
from pipelines.pages.tables.leakage import attributes_table, inversion_table
from pipelines.pages.tables.sizes import sizes_table
from pipelines.pages.tables.study import again, published_table, stages
from pipelines.pages.tables.translation import corpora_table, judged_table, translation_table
from pipelines.runtime import stage, store, track
from pipelines.study import params

TABLES = (
    corpora_table, translation_table, judged_table, sizes_table, similarity_table, trained_table, geometry_table,
    attributes_table, inversion_table, image_text_table, published_table, again,
)  # fmt: skip


def report(name: str, row: None, study: params.Study, run: track.Run) -> None:
    """Draw every picture, write the page, the findings and the headline numbers; keep them with the MLflow run."""
    drawing.FOLDER.mkdir(parents=True, exist_ok=True)
    drawing.draw(study)  # before the tables, which show what is drawn
    headlines.write(study)
    found = findings(study)
    sections = ["\n".join(lines) for lines_of in TABLES if (lines := lines_of(study))]
    markdown = "\n\n".join([*beginning(study, found), contents(sections), *sections]) + "\n"
    path = page.write(store.REPORT / "report.html", f"{study.study}: universal geometry", markdown)
    for file in (path, path.with_suffix(".md"), written(study, found, path), took(study)):
        run.artifact(file)
    for picture in sorted(drawing.FOLDER.glob("*.png")):
        run.artifact(picture, "pictures")
    print(path)


def beginning(study: params.Study, found: list[Finding]) -> list[str]:
    """Title, what the study asks, and each finding with its picture and the way to its table."""
    lines = [title(study), study.about]
    for n, (sentence, picture, anchor) in enumerate(found, 1):
        claim, stop, more = escaped(sentence, most=5000).partition(". ")
        lines += [f"{n}. {claim}{stop.strip()}", f"   {more} [Table](#{anchor})"]
        if picture:
            lines.append(f"   ![{picture.stem.replace('.', ' ')}]({picture.relative_to(store.REPORT)})")
    return [line for line in lines if line]


def title(study: params.Study) -> str:
    return f"# {study.study}: what was found"


def contents(sections: list[str]) -> str:
    """A link to every section."""
    headings = [section.partition("\n")[0].removeprefix("## ") for section in sections]
    return "## Contents\n\n" + " · ".join(f"[{heading}](#{page.slug(heading)})" for heading in headings)


def written(study: params.Study, found: list[Finding], html: Path) -> Path:
    """report/findings.md: the sentences alone, and where the page is; `make repro` ends with it."""
    path = html.with_name("findings.md")
    numbered = [f"{n}. {finding.sentence}" for n, finding in enumerate(found, 1)]
    sentences = [
        textwrap.fill(line, 110, subsequent_indent="   ", break_on_hyphens=False) for line in numbered
    ]
    with store.atomic(path) as draft:
        draft.write_text(
            "\n\n".join([title(study), *sentences, f"The page: {html} and {html.stem}.md"]) + "\n"
        )
    return path


def took(study: params.Study) -> Path:
    """report/stages.md: how long each stage took, on which device, at which commit."""
    with store.atomic(path := store.REPORT / "stages.md") as draft:
        draft.write_text(stages(study))
    return path


if __name__ == "__main__":
    stage.main(report)
