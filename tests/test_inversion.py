"""Inversion: measures by hand, a decoder that learns, corrections that only help, a judge asked once."""

import io
import json
import math
import unicodedata
from dataclasses import asdict, replace
from email.message import Message
from itertools import combinations, product
from urllib.error import HTTPError

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from torch import nn
from torch.nn.functional import normalize
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from pipelines import invert
from pipelines.aligners.core.translator import Linear, load_seeds
from pipelines.aligners.core.verdict import Verdict
from pipelines.encoders import query
from pipelines.fitting.fits import write_verdicts
from pipelines.inverters import Draft, Queries, Space, attacker, decoder, hub, judge, search, writer
from pipelines.inverters import consensus as voting
from pipelines.inverters.corrector import train_corrector
from pipelines.inverters.splice import splice
from pipelines.inverters.vocabulary import END, PAD, START, Vocabulary, learn
from pipelines.measures import facts
from pipelines.measures.inversion import bleu, rouge_l, set_f1, text_scores, token_f1, words
from pipelines.runtime import progress, store
from pipelines.runtime.track import Run
from tests import small
from tests.small import normal, put, refusal, rotation, run_stage, seeded, write_corpus

# ---------------------------------------------------------------- measures

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=8)


def test_worked_by_hand():
    guess, true = ["the", "cat", "sat", "on", "the", "mat"], ["the", "cat", "is", "on", "the", "mat"]
    assert token_f1(guess, true) == pytest.approx(10 / 12)
    assert rouge_l(guess, true) == pytest.approx(10 / 12)
    # 1..4-gram hits: 5/6; (3+1)/(5+1); (1+1)/(4+1); (0+1)/(3+1)
    assert bleu(guess, true) == pytest.approx((5 / 6 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25)
    assert bleu(guess[:3], true) == pytest.approx((2 / 3 * 2 / 3 * 1 / 2) ** 0.25 * math.exp(-1))
    # Set F1 keeps case and marks, and counts nothing twice
    assert set_f1("The cat, the CAT.", "the cat!") == pytest.approx(2 * 2 / (6 + 3))
    assert set_f1("a a a b", "b a") == 1
    assert (set_f1("", "a"), set_f1("", "")) == (0, 1)
    # Case and punctuation do not count, but money does
    scores = text_scores(["hello , world !", "5 apples"], ["Hello, World", "$5 apples"])
    assert scores["exact"].tolist() == [1, 0]
    assert scores["token_f1"][1] == pytest.approx(0.8)


@given(WORDS, WORDS)
def test_scores_are_shares_and_one_only_for_agreement(guess, true):
    for measure in (token_f1, rouge_l, bleu):
        assert 0 <= measure(guess, true) <= 1 + 1e-12
        assert measure(true, true) == pytest.approx(1)
    assert (token_f1(guess, true) > 1 - 1e-9) == (sorted(guess) == sorted(true))
    assert (rouge_l(guess, true) > 1 - 1e-9) == (guess == true)
    assert rouge_l(guess, true) <= token_f1(guess, true) + 1e-12
    common = next(k for k in range(8, -1, -1) if {*combinations(guess, k)} & {*combinations(true, k)})
    assert rouge_l(guess, true) == (2 * common / (len(guess) + len(true)) if guess or true else 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Café ZOË", ["café", "zoë"]),
        ("हिन्दी में, लिखो", ["हिन्दी", "में", "लिखो"]),
        ("don’t pay €5 – “now”", ["don", "t", "pay", "€", "5", "now"]),
    ],
)
def test_words_keep_their_marks_in_either_unicode_form(text, said):
    for form in ("NFC", "NFD"):
        assert words(unicodedata.normalize(form, text)) == [unicodedata.normalize("NFC", w) for w in said]


# ---------------------------------------------------------------- vocabulary


def test_a_vocabulary_spells_what_it_never_saw():
    vocabulary = learn(["Ann owes $25 to Bo.", "Bo owes Ann nothing, café!"], 400)
    known, unknown = vocabulary.encode(["ann owes bo $25", "žluťoučký"], 50)
    assert known[-1] == END
    assert words(vocabulary.decode(known)) == ["ann", "owes", "bo", "$", "25"]
    assert vocabulary.decode(unknown) == "žluťoučký"
    read = Vocabulary(Tokenizer.from_str(vocabulary.tokenizer.to_str()))
    assert read.decode([PAD, START, *unknown, END, 3]) == "žluťoučký"


# ---------------------------------------------------------------- a world small enough to learn

NAMES, VERBS = ["ann", "bo", "cy", "dee", "eli"], ["buys", "sells", "wants"]
THINGS = ["rice", "gold", "tea", "salt"]
TEXTS = [" ".join(words) for words in product(NAMES, VERBS, THINGS)]


DIRECTIONS = {word: normal(24, seed=number) for number, word in enumerate([*NAMES, *VERBS, *THINGS])}


def encode(texts):
    """A bag of words, as a static encoder would: each word's own random direction."""
    bags = [[DIRECTIONS[word] for word in text.split() if word in DIRECTIONS] for text in texts]
    return torch.stack([sum(bag, torch.full((24,), 0.1)) for bag in bags])


SMALL = decoder.Settings(vocabulary=320, tokens=12, width=48, layers=1, heads=2, epochs=180)
ORDER = torch.randperm(len(TEXTS), generator=seeded()).tolist()
KNOWN, SECRET = [TEXTS[i] for i in ORDER[:48]], [TEXTS[i] for i in ORDER[48:]]


SPACE = Space.of(encode(KNOWN))
LEARNT, ATTACKED = SPACE(encode(KNOWN)), SPACE(encode(SECRET))


@pytest.fixture(scope="module")
def trained():
    return decoder.train(LEARNT, KNOWN, SMALL, 0)


def f1(guesses, texts):
    return text_scores(guesses, texts)["token_f1"].mean().item()


def greedy(model, vectors):
    return [model.text(d) for d in model.propose(vectors)]


def searched(model, corrector=None, **settings):
    """Guesses, and the number of queries."""
    queries = Queries(encode, SPACE)
    given = search.Settings(**{"samples": 1, "rounds": 0, "nearest": 0} | settings)
    near = attacker.Attacker(SPACE, LEARNT, KNOWN, model).nearest(ATTACKED, 5)
    first, best = search.search(model, ATTACKED, queries, given, 0, corrector, near)
    assert first == model.propose(ATTACKED)
    return best, queries.count


def as_near(before, after):
    return all(b.cosine >= a.cosine - 1e-6 for a, b in zip(before, after, strict=True))


def test_the_decoder_writes_unseen_texts_from_their_vectors(trained):
    assert f1(greedy(trained, ATTACKED), SECRET) > 0.8
    assert f1(greedy(trained, ATTACKED.roll(1, 0)), SECRET) < 0.6
    assert f1(greedy(trained, trained.blind.detach().expand(len(SECRET), -1)), SECRET) < 0.6


def test_same_seed_same_decoder():
    a, b = (decoder.train(LEARNT, KNOWN, replace(SMALL, epochs=2), 3) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize(
    "extra", [{"samples": 4}, {"beams": 2, "stride": 3}, {"rounds": 3}, {"splices": 3}, {"nearest": 2}]
)
def test_each_search_comes_as_near_and_counts_its_queries(trained, extra):
    before, fewer = searched(trained)
    after, count = searched(trained, **extra)
    assert as_near(before, after)
    sure = {"samples", "beams"} & {*extra}  # their texts may equal the first guess, and are embedded once
    assert count > 0
    assert count >= fewer if sure else count > fewer
    found = SPACE(encode([trained.text(guess.draft) or "." for guess in after]))
    cosines = torch.tensor([guess.cosine for guess in after])
    torch.testing.assert_close((found * ATTACKED).sum(1), cosines, atol=1e-5, rtol=0)
    if "nearest" in extra:
        assert (cosines >= (ATTACKED @ LEARNT.T).max(1).values - 1e-5).all()


def test_a_query_is_asked_once():
    asked = []
    queries = Queries(lambda texts: asked.extend(texts) or encode(texts), Space(torch.zeros(24)))
    assert queries(["ann", "bo", "ann", ""]).shape == (4, 24)
    queries(["bo", "tea"])
    assert asked == ["ann", "bo", ".", "tea"]
    assert queries.count == 4


def test_swaps_undo_a_wrong_word(trained):
    vectors, once = SPACE(encode(["ann buys rice"])), search.Settings(rounds=1, swaps=40)
    run = search.Search(trained, vectors, Queries(encode, SPACE), once, seeded())
    wrong = search.Guess(trained.draft("bo buys rice"), -1.0)
    assert trained.text(run.swap([wrong])[0].draft) == "ann buys rice"
    empty = search.Guess(Draft((), True), -1.0)
    assert trained.alternatives(vectors, [empty.draft], 40, run.generator) == [[]]
    assert run.swap([empty]) == [empty]


def test_the_corrector_only_helps():
    short = decoder.train(LEARNT, KNOWN, replace(SMALL, epochs=20), 0)
    corrector = train_corrector(short, LEARNT, KNOWN, Queries(encode, SPACE), 0)
    plain, better = (searched(short, corrector, corrections=n)[0] for n in (0, 2))
    assert as_near(plain, better)
    assert any(b.cosine > a.cosine for a, b in zip(plain, better, strict=True))


def test_too_few_texts_and_a_missing_model_are_refused(tmp_path):
    with refusal("1 text to learn from"):
        attacker.learn(torch.ones(1, 4), ["a"], SMALL, 0)
    with refusal("no encoder-decoder language model"):
        hub.load(hub.Settings(model=str(tmp_path / "nothing")), 4)


# ---------------------------------------------------------------- hub models, from folders made here


def tiny_model(folder):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=learn(KNOWN, 320).tokenizer, eos_token="[END]", pad_token="[PAD]"
    )
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=1,
        num_heads=2,
        eos_token_id=2,
        decoder_start_token_id=0,
    )
    torch.manual_seed(0)
    T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_a_language_model_is_conditioned_on_the_vector(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BATCH", 16)
    monkeypatch.setattr(hub, "LR", 1e-2)
    s = hub.Settings(model=tiny_model(tmp_path / "lm"), tokens=12, epochs=15)
    model = hub.train(LEARNT, KNOWN, s, 0)
    assert f1(greedy(model, ATTACKED), SECRET) > f1(greedy(model, ATTACKED.roll(1, 0)), SECRET)
    assert len(searched(model, samples=2, rounds=1, swaps=4)[0]) == len(SECRET)
    assert greedy(hub.restored(model.state()), ATTACKED) == greedy(model, ATTACKED)


def test_a_kernel_that_a_language_model_names_is_ignored(tmp_path, monkeypatch):
    s = hub.Settings(model=tiny_model(tmp_path / "lm"), tokens=6)
    plain = hub.load(s, 24)
    names_a_kernel(tmp_path / "lm", monkeypatch)
    assert hub.load(s, 24).model.config._attn_implementation == plain.model.config._attn_implementation


def names_a_kernel(folder, monkeypatch):
    """Let config.json name a kernel of the hub, which may not be loaded."""
    config = json.loads((folder / "config.json").read_text())
    put(folder / "config.json", json.dumps(config | {"attn_implementation": "kernels-community/x"}))
    loader = "transformers.modeling_utils.lazy_import_flash_attention"
    monkeypatch.setattr(loader, lambda *_, **__: pytest.fail("a kernel is loaded"))


def bag(texts):
    """An encoder that counts words."""
    return torch.tensor([[float(words(t).count(w)) for w in WORLD] for t in texts])


WORLD = ["ann", "smith", "pays", "rent", "bo", "jones", "owes", "gold", "cy", "reads", "books"]


def test_splicing_joins_sentences_and_names_of_several_texts():
    known = ["Cy reads books. Ann Smith owes gold.", "Bo Jones pays rent.", "Cy reads."]
    queries = Queries(lambda texts: bag(texts) + 0.01, Space(torch.zeros(len(WORLD))))
    secret = ["Bo Jones owes gold. Cy reads books.", "Ann Smith pays rent."]
    vectors = queries(secret)
    found = splice(vectors, [known, known[::-1]], queries, lambda text: True, rounds=6, tried=8)
    before = (queries([known[0], known[2]]) * vectors).sum(1)
    assert ((queries(found) * vectors).sum(1) > before).all()
    assert "Cy reads books." in found[0]
    assert "Bo Jones" in found[0]
    short = splice(vectors, [known, known[::-1]], queries, lambda text: len(text) < 20, rounds=6, tried=8)
    assert all(len(text) < 20 or text.replace("\n", " ") in known for text in short)


@given(st.lists(WORDS.map(" ".join), min_size=1, max_size=5))
def test_agreement_is_token_f1_of_each_pair(some):
    f1s = [token_f1(a.split(), b.split()) if a and b else 0.0 for a, b in product(some, some)]
    torch.testing.assert_close(voting.agreement(some).flatten(), torch.tensor(f1s))


def test_consensus_is_the_text_most_like_its_neighbours(monkeypatch):
    texts = ["an odd one out", "the rent is due now", "rent is due", "the rent is due", "far away"]
    known = normalize(torch.tensor([[1.0, 0.0], [0.99, 0.1], [0.99, 0.12], [0.99, 0.14], [0.0, 1.0]]))
    vector = torch.tensor([[1.0, 0.0]])
    monkeypatch.setattr(voting, "NEAR", 4)
    for concentration, agreed in ((1.0, "the rent is due"), (1e4, "an odd one out")):
        monkeypatch.setattr(voting, "CONCENTRATION", concentration)
        assert voting.consensus(vector, known, texts) == [agreed]


def test_voters_state_what_is_new_and_peculiar_to_them(monkeypatch):
    texts = ["Ann Smith asked Cy Reed.", "Ann Smith asked Bo Jones.", "Bo Jones owes Ann Smith."]
    texts += ["Thanks, Ann Smith"] * 5
    known = normalize(torch.tensor([[1.0, 0.1 * i] for i in range(3)] + [[0.0, 1.0]] * 5))
    stated, vectors = [facts.stated(text) for text in texts], torch.tensor([[1.0, 0.0]])

    assert voting.peculiar_facts(vectors, known, stated) == [[]]  # all vote: nothing is peculiar
    monkeypatch.setattr(voting, "VOTERS", 3)
    peculiar = voting.peculiar_facts(vectors, known, stated)
    assert voting.stating(["a guess"], peculiar, 2) == ["a guess\nBo Jones; Cy Reed"]
    assert voting.stating(["to bo jones"], peculiar, 1) == ["to bo jones\nCy Reed"]


# ---------------------------------------------------------------- judge

JUDGE = judge.Settings(endpoint="http://here/v1", model="m")


@pytest.fixture
def asked(monkeypatch, failing):
    """Questions to an endpoint that says yes to texts with "ann", and is odd to odd ones.

    It first raises the errors of `failing`.
    """
    asked = []

    def answer(request, timeout):
        asked.append(request)
        if failing:
            raise failing.pop()
        question = json.loads(request.data)["messages"][0]["content"]
        if "none" in question:
            said = None
        else:
            said = "Maybe" if "odd" in question else "**Yes**." if "ann" in question else "Answer: 'no'"
        return io.BytesIO(json.dumps({"choices": [{"message": {"content": said}}]}).encode())

    monkeypatch.setattr("urllib.request.urlopen", answer)
    monkeypatch.setattr(judge.time, "sleep", lambda seconds: None)
    return asked


@pytest.fixture
def failing():
    return []


def test_the_judge_is_asked_once_and_remembers(asked, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", " key\n")
    for _ in range(2):
        assert judge.judge(["ann is ill", "hello"], ["ann was ill", "bye"], JUDGE, tmp_path) == [True, False]
    assert len(asked) == 2
    body = json.loads(asked[0].data)
    assert (asked[0].full_url, body["model"]) == ("http://here/v1/chat/completions", "m")
    assert (asked[0].headers["Authorization"], body["temperature"]) == ("Bearer key", 0)
    assert "ann was ill" in body["messages"][0]["content"]


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1/v1", "http://[::1/v1", "http://localhost:port/v1"])
def test_a_judge_that_does_not_answer_is_one_line(endpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(judge.time, "sleep", lambda seconds: None)
    with refusal("no answer"):
        judge.judge(["odd"], ["odd"], judge.Settings(endpoint, "m"), tmp_path)


def test_no_answer_is_not_a_no(asked, tmp_path):
    with refusal("http://here/v1: no answer"):
        judge.judge(["none"], ["none"], JUDGE, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_answer_without_yes_or_no_counts_as_no(asked, tmp_path):
    assert judge.judge(["odd"], ["odd"], JUDGE, tmp_path) == [False]


def test_a_judge_is_asked_again_after_a_time_out_or_an_overload_only(asked, failing, tmp_path):
    def http(code):
        return HTTPError("http://here", code, "said", Message(), None)

    failing += [TimeoutError(), http(503)]
    assert judge.judge(["ann"], ["ann"], JUDGE, tmp_path) == [True]
    for fatal, times in (([http(429)] * 3, 3), ([http(401)], 1)):
        asked.clear()
        failing[:] = fatal
        with refusal("no answer: HTTP Error"):
            judge.judge(["hello"], ["bye"], JUDGE, tmp_path)
        assert len(asked) == times


def test_the_key_of_a_judge_is_never_printed(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\nSECRET")
    with refusal("no answer") as said:
        judge.judge(["a"], ["b"], judge.Settings("http://127.0.0.1:1/v1", "m"), tmp_path)
    assert "SECRET" not in str(said.value)


# ---------------------------------------------------------------- the stage


ATTACK = {"translator": "t", "inverter": "i", "texts": 12, "search": {"samples": 2, "rounds": 2}}


def study_of(inverter=None, corrector=False, attacker=None, **row):
    inverter = inverter or asdict(SMALL) | {"epochs": 75}
    learns = {"space": "c-b", "inverter": inverter, "corrector": corrector} | (attacker or {})
    return small.study_of(
        "c",
        "a b",
        align={"t": {"source": "c-a", "target": "c-b", "aligner": "identity"}},
        inverters={"i": learns},
        invert={"r": ATTACK | row},
    )


@pytest.fixture
def stored(own_folder, monkeypatch):
    """Texts whose planted facts are their names, embedded, with a translator that is right."""
    texts = [*KNOWN, *SECRET]
    split = ["train"] * 48 + ["test"] * 12
    write_corpus(
        "c", texts, split, names=[text.split()[:1] for text in texts], codes=[["unwritten", None, "!"]] * 60
    )
    vectors = encode(texts)
    small.write_embeddings("c-a", -vectors, split, corpus="c")
    small.write_embeddings("c-b", vectors, split, corpus="c")
    small.write_translator("t", Linear.of(-torch.eye(24), -vectors, vectors))
    monkeypatch.setattr(query, "as_function", lambda folder, row, device: encode)


def test_the_stage_puts_translated_between_ceiling_and_floors(stored, capsys, monkeypatch):
    study = study_of()
    with refusal("no inverter there"):
        run_stage("invert", study, "r")
    run_stage("train_inverter", study, "i")
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    measured, seen = invert.measured, []
    monkeypatch.setattr(invert, "measured", lambda *given: seen.append(given[0]) or measured(*given))
    found = run_stage("invert", study, "r")
    phases = {line.partition(":")[0] for line in capsys.readouterr().err.splitlines()}
    assert phases >= {"invert", "write", "swap words", "consensus", "measure"}
    assert (found["texts"], found["known"]) == (12, 48)
    mine, best = found["translated"]["corrected"], found["ceiling"]["corrected"]
    assert best["token_f1"] >= mine["token_f1"] - 0.1 > found["mismatched"]["corrected"]["token_f1"]
    assert mine["token_f1"] > found["prior"]["generated"]["token_f1"]
    assert mine["facts"]["names"]["recoverable"] == 12
    lucky = found["mismatched"]["corrected"]["facts"]["names"]
    assert mine["facts"]["names"]["recovered"] > lucky["recovered"]
    codes = best["facts"]["codes"]
    assert (codes["recovered"], codes["recoverable"], codes["above_floor"]) == (0, 12, 0)
    assert codes["low"] < 0 < codes["high"]
    assert mine["queries"] > 0
    assert found["translated"]["generated"]["queries"] == found["translated"]["retrieved"]["queries"] == 0
    [guesses] = seen
    for method in ("generated", "corrected", "retrieved", "consensus"):  # the floor is no attack of its own
        of = {g.attack: g for g in guesses if g.method == method}
        assert of["mismatched"].texts == of["translated"].texts[-1:] + of["translated"].texts[:-1]
        assert of["mismatched"].queries == of["translated"].queries
    assert not {text for g in guesses if g.method == "retrieved" for text in g.texts} & set(SECRET)
    assert pl.read_csv(store.examples_path("r"))[0, "facts"]
    assert mine["facts"]["all"]["recoverable"] == 2 * 12  # a name and a code: null and "!" are no words


@pytest.mark.parametrize(("killed_at", "left"), [(9, 18), (17, 9)])  # of 12 steps, and 12 of the corrector
def test_a_killed_training_ends_in_the_same_bytes(stored, monkeypatch, killed_at, left):
    study = study_of(asdict(SMALL) | {"epochs": 4}, corrector=True)
    monkeypatch.setattr(writer, "BATCH", 16)  # three steps of an epoch
    run_stage("train_inverter", study, "i")
    path = store.inverters_path("i") / attacker.FILE
    whole, done, clip = path.read_bytes(), [], nn.utils.clip_grad_norm_

    def stepping(*given):
        done.append(1)
        if len(done) == killed_at:
            raise KeyboardInterrupt
        return clip(*given)

    path.unlink()
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", stepping)
    with pytest.raises(KeyboardInterrupt):
        run_stage("train_inverter", study, "i")
    run_stage("train_inverter", study, "i")
    assert path.read_bytes() == whole
    assert len(done) == killed_at + left


def test_the_attackers_own_texts_are_not_attacked():
    for keys in ({"split": "train"}, {"attacker": {"split": None}}):
        with pytest.raises(ValueError, match="the attacker's texts are the attacked ones"):
            study_of(**keys)


def test_a_column_of_lists_holds_facts_of_generated_texts_only():
    texts = pl.DataFrame({"text": ["Ann Lee owes $5"], "labels": [["debt"]], "tags": [["oil", "law"]]})
    assert invert.facts_of(texts, planted=True) == [{"tags": ["oil", "law"]}]
    assert invert.facts_of(texts, planted=False) == [{"amounts": ["$5"], "names": ["Ann Lee"]}]


def test_the_attack_takes_the_best_or_the_mean_of_aligned_seeds(stored):
    folder, vectors = store.translators_path("t"), encode([*KNOWN, *SECRET])
    for seed in (1, 2):
        small.write_translator("t", Linear.of(rotation(24, 24, seeded(seed)), -vectors, vectors), seed)
    fits, space = load_seeds(folder), store.read_embeddings("c-a")
    known = attacker.Attacker(Space(torch.arange(24.0)), torch.empty(0, 24), [], None)
    for keys, labels, used in (
        ({}, ("aligned", "failed", "aligned"), [2]),
        ({"seeds": "aligned"}, ("aligned", "failed", "aligned"), [0, 2]),
        ({"seeds": "aligned"}, ("doubtful",) * 3, [2]),  # none is aligned: the best alone
    ):
        scores = zip((0.8, 0.7, 0.9), labels, strict=True)
        write_verdicts(folder, {s: Verdict(*score, 0.5, 50) for s, score in enumerate(scores)})
        victim = invert.draw_victim("r", study_of(**keys).invert["r"], known, Run(), True)
        translated = sum(fits[seed](space.vectors) for seed in used) / len(used)
        # The dump's mean is moved to that of the attacker's texts
        shift = known.space.mean - translated[space.rows("test")].mean(0)
        torch.testing.assert_close(victim.translated, translated[[int(i) for i in victim.ids]] + shift)
