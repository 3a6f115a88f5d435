"""report: write what the study found, and every table, in one page: report/report.html, and report.md beside
it.

report/findings.md has the findings alone. The same results at one commit give the same bytes.
"""

import textwrap
from pathlib import Path

from pipelines.pages import drawing, headlines, page
from pipelines.pages.findings import Finding, findings
from pipelines.pages.tables import encoders, escaped, images, leakage, sizes, translation
from pipelines.pages.tables import study as of_study
from pipelines.runtime import intact, stage, store, track
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import say, write_text
from pipelines.study.params import Study

TABLES = (
    *translation.TABLES,
    *sizes.TABLES,
    *encoders.TABLES,
    *leakage.TABLES,
    *images.TABLES,
    *of_study.TABLES,
)
TITLE = "# {}: what was found"
NONE = "No findings. Rows of `evaluate`, `attributes`, `invert` or `geometry` would give some."
LONGEST = 5000  # characters of a study's `about`, and of a finding


def report(name: str, row: None, study: Study, run: track.Run) -> None:
    """Draw every picture, write the page, the findings and the headline numbers, and log them to MLflow.

    Raises BadInput if results of other settings lack something that the page needs.
    """
    try:
        write(study, run)
    except Exception as error:
        if isinstance(error, (BadInput, OSError)) or not (fault := outdated(study)):
            raise
        raise BadInput(f"run {fault}") from error


def write(study: Study, run: track.Run) -> None:
    """Do what `report` does."""
    drawing.FOLDER.mkdir(parents=True, exist_ok=True)
    drawing.draw(study)  # before the tables, which show the pictures
    headlines.write(study)
    found = findings(study)
    sections = ["\n".join(lines) for lines_of in TABLES if (lines := lines_of(study))]
    markdown = "\n\n".join([*beginning(study, found), contents(sections), *sections]) + "\n"
    path = page.write(store.REPORT / "report.html", f"{study.study}: universal geometry", markdown)
    write_text(path.with_name("findings.md"), alone(study, found, path))
    for file in (path.name, "report.md", "findings.md"):
        run.artifact(path.with_name(file))
    for picture in sorted(drawing.FOLDER.glob("*.png")):
        run.artifact(picture, "pictures")
    say(str(path))


def beginning(study: Study, found: list[Finding]) -> list[str]:
    """Return the title, what the study asks, and each finding with its picture and a link to its table.

    If DVC has not run a stage of the study with its present settings and inputs, a warning names it.
    """
    lines = [TITLE.format(escaped(study.study)), escaped(study.about, LONGEST)]
    if fault := outdated(study):
        lines.append(f"**Run {fault}**")
    for n, (sentence, picture, anchor) in enumerate(found, 1):
        claim, stop, more = escaped(sentence, LONGEST).partition(". ")
        lines += [f"{n}. {claim}{stop.strip()}", f"   {more} [Table](#{anchor})"]
        if picture:
            lines.append(f"   ![{picture.stem.replace('.', ' ')}]({picture.relative_to(store.REPORT)})")
    return [line for line in lines if line] + ([] if found else [NONE])


def outdated(study: Study) -> str:
    """Return what to run, and the stages of the study whose metrics have other settings or inputs, if any."""
    found = intact.outdated(study.stages())
    stages = ", ".join(stage for stage in found if store.metrics_path(*stage.split("@")).exists())
    return f"`dvc repro`: numbers of these stages have other settings or inputs: {stages}" if stages else ""


def contents(sections: list[str]) -> str:
    """Return a link to every section."""
    headings = [section.partition("\n")[0].removeprefix("## ") for section in sections]
    return "## Contents\n\n" + " · ".join(f"[{heading}](#{page.slug(heading)})" for heading in headings)


def alone(study: Study, found: list[Finding], html: Path) -> str:
    """Return findings.md: the sentences alone, and where the page is. `make repro` prints it."""
    sentences = [
        textwrap.fill(f"{n}. {finding.sentence}", 110, subsequent_indent="   ", break_on_hyphens=False)
        for n, finding in enumerate(found, 1)
    ]
    where = f"The page: {html} and {html.with_suffix('.md')}"
    return "\n\n".join([TITLE.format(escaped(study.study)), *(sentences or [NONE]), where]) + "\n"


if __name__ == "__main__":
    stage.main(report)
