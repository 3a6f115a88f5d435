"""fetch: an encoder's checked weights -> data/encoders/<encoder>/, a sentence-transformers folder."""

import shutil
from pathlib import Path

from pipelines.encoders import sources
from pipelines.runtime import intact, stage, store, track
from pipelines.study import Encoder, params


def fetch(name: str, row: Encoder, study: params.Study, run: track.Run) -> None:
    """Copy or download into a draft, then rename: a killed download leaves no partial encoder."""
    folder = store.encoder_path(name)
    with store.work("fetch", name, row) as draft:
        shutil.rmtree(draft)
        intact.checked(Path(row.path))  # a folder that `finetune` wrote
        sources.fetch(row, draft / "encoder")
        store.publish_folder(draft / "encoder", folder)
    run.log({"bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())})


if __name__ == "__main__":
    stage.main(fetch)
