"""train_inverter: an inverter from the attacker's own texts and their vectors -> data/inverters/<row>/."""

from pipelines.encoders import query
from pipelines.inverters import attacker
from pipelines.measures.vectors import shuffled
from pipelines.runtime import intact, stage, store, track
from pipelines.runtime.device import resolve
from pipelines.study import Inverter, params


def train_inverter(name: str, row: Inverter, study: params.Study, run: track.Run) -> None:
    """Draw the attacker's texts with the row's seed, and train on them only. A killed run continues."""
    device = resolve(row.device)
    embeddings = store.read_embeddings(row.space, device)
    corpus = store.read_texts(embeddings, row.corpus)
    run.input(store.embeddings_path(row.space), "own texts")
    rows = embeddings.rows(row.split)
    rows = rows[shuffled(len(rows), row.seed)[: row.known]]
    vectors, texts = embeddings.vectors[rows], corpus["text"][rows.tolist()].to_list()
    encode = None
    if row.corrector:
        folder = intact.checked(store.encoder_path(row.encoder))
        encode = query.as_function(folder, study.encoders[row.encoder], device)
    code = store.code_digest("encoders", "inverters", "train_inverter")
    inputs = store.embeddings_path(row.space), store.corpus_path(row.corpus)
    made_from = (code, row, study.encoders[row.encoder], *inputs, str(device))
    with store.work("train_inverter", name, *made_from) as folder:
        learnt = attacker.learn(vectors, texts, row.inverter, row.seed, run.log, encode, folder)
        output = folder / "output"
        output.mkdir(exist_ok=True)
        attacker.save(learnt, output)
        store.publish_folder(output, store.inverters_path(name))


if __name__ == "__main__":
    stage.main(train_inverter)
