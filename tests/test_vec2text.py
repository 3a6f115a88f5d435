"""vec2text's released weights: read under their official names, and corrected as the authors' code does.

`Reference` repeats the official parameter names and inputs on purpose."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

from pipelines.inverters import Queries, attacker, vec2text
from pipelines.inverters.vec2text import Settings, load
from pipelines.runtime import store
from tests import test_inversion as world
from tests.small import normal, put, refusal, run_stage, seeded
from tests.test_inversion import stored  # noqa: F401

DIMENSION, REPEATS, TOKENS, END, PAD = 24, 3, 12, 2, 0
VECTORS = world.encode(world.TEXTS)


class Reference(nn.Module):
    """InversionModel (one=True) or CorrectorEncoderModel of vec2text's code: their names of parameters, their
    inputs.
    """

    def __init__(self, t5, one):
        super().__init__()
        self.one, self.encoder_decoder, width = one, t5, t5.config.d_model
        names = ["embedding_transform"] if one else [f"embedding_transform_{i}" for i in (1, 2, 3)]
        for name in names:
            first, last = nn.Linear(DIMENSION, 20), nn.Linear(20, REPEATS * width)
            setattr(self, name, nn.Sequential(first, nn.Dropout(0.1), nn.GELU(), last))
        if one:
            self.embedder = nn.Linear(2, 2)  # stands for the encoder that an inversion model carries along
        else:
            self.layernorm = nn.LayerNorm(width)
            nn.init.normal_(self.layernorm.weight)
            nn.init.normal_(self.layernorm.bias)

    def forward(self, vectors, labels, hypotheses=None, ids=None):
        shape = len(vectors), REPEATS, self.encoder_decoder.config.d_model
        if self.one:
            read, mask = self.embedding_transform(vectors).reshape(shape), torch.ones(shape[:2])
        else:
            embed = self.encoder_decoder.encoder.embed_tokens
            end = embed(torch.full((len(vectors), 1), END))
            target = self.embedding_transform_1(vectors).reshape(shape)
            difference = self.embedding_transform_2(vectors - hypotheses).reshape(shape)
            guess = self.embedding_transform_3(hypotheses).reshape(shape)
            parts = end, target, end, guess, end, difference, end, embed(ids)
            read = self.layernorm(torch.cat(parts, dim=1))
            mask = torch.cat((torch.ones(len(vectors), 4 + 3 * REPEATS), (ids != PAD).float()), dim=1)
        return self.encoder_decoder(inputs_embeds=read, attention_mask=mask, labels=labels).logits


def written(folder, model, backbone=None):
    """A folder as the hub has it: config.json and weights. A T5's three names of one tensor are one."""
    shared = tuple(f"{name}.weight" for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head"))
    state = {k: v.detach().clone() for k, v in model.state_dict().items() if not k.endswith(shared)}
    given = {"max_seq_length": TOKENS, "embedder_model_name": "of the test"}
    given |= {"model_name_or_path": backbone} if backbone else {}
    put(folder / "config.json", json.dumps(given))
    save_file(state, folder / "model.safetensors")
    return str(folder)


def released(root, train=0):
    """Both folders, and both reference models. train: steps in which the corrector learns the texts of the
    little world.
    """
    backbone = world.tiny_model(root / "t5")
    torch.manual_seed(1)
    t5 = [T5ForConditionalGeneration.from_pretrained(backbone) for _ in range(2)]
    inversion, corrector = Reference(t5[0], one=True), Reference(t5[1], one=False)
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    ids = tokenizer(world.TEXTS, add_special_tokens=False)["input_ids"]
    labels = nn.utils.rnn.pad_sequence([torch.tensor([*i, END]) for i in ids], True, -100)
    optimiser = torch.optim.Adam(corrector.parameters(), 1e-2)
    for _ in range(train):
        hypotheses, ids = torch.randn_like(VECTORS), torch.randint(3, 90, (len(VECTORS), 5))
        logits = corrector(VECTORS, labels, hypotheses, ids)
        optimiser.zero_grad()
        cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100).backward()
        optimiser.step()
    first = written(root / "inversion", inversion, backbone)
    second = written(root / "corrector", corrector, backbone)
    return Settings(first, second), inversion.eval(), corrector.eval()


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    return load(released(tmp_path_factory.mktemp("learnt"), train=150)[0])


def test_a_kernel_that_a_backbone_names_is_ignored(tmp_path, monkeypatch):
    settings, *_ = released(tmp_path)
    world.names_a_kernel(tmp_path / "t5", monkeypatch)
    state = load(settings).state()
    vec2text.restored(state | {"config": state["config"] | {"attn_implementation": "kernels-community/x"}})


def test_official_weights_give_the_same_logits(tmp_path):
    settings, inversion, corrector = released(tmp_path)
    mine = load(settings)
    vectors, hypotheses = normal(2, 2, DIMENSION)
    ids = torch.tensor([[0, 5, 6, 7, END], [0, 8, END, 0, 0]])
    labels = torch.randint(3, 90, (2, 6), generator=seeded())
    first, second = mine.inversion.inputs(vectors), mine.corrector.correction_inputs(vectors, hypotheses, ids)
    with torch.inference_mode():
        found = mine.inversion.encoder_decoder(**first, labels=labels).logits
        assert torch.allclose(found, inversion(vectors, labels), atol=1e-5)
        found = mine.corrector.encoder_decoder(**second, labels=labels).logits
        assert torch.allclose(found, corrector(vectors, labels, hypotheses, ids), atol=1e-5)
    about = mine.tokens, mine.inversion.dimension, mine.about["embedder"]
    assert about == (TOKENS, DIMENSION, "of the test")


def test_a_corrector_writes_known_texts_in_few_queries(learnt):
    queries, beams, steps = Queries(world.encode, lambda v: v), 3, 4
    first, corrected = learnt.invert(VECTORS, queries, 0, 1), learnt.invert(VECTORS, queries, steps, beams)
    assert world.f1(corrected, world.TEXTS) > 0.9 > world.f1(first, world.TEXTS)
    assert 0 < queries.count <= len(VECTORS) * (1 + beams + (steps - 1) * beams**2)


class Counting(vec2text.Vec2Text):
    """Writes numbers: first 0, and of n the corrections n + 1 to n + beams."""

    def _written(self, network, inputs, beams):
        return [(0,) for _ in inputs["inputs_embeds"]]

    def _corrected(self, vectors, live, beams):
        self.widths = [*getattr(self, "widths", []), *map(len, live)]
        return [[(h.ids[0] + k + 1,) for h in hypotheses for k in range(beams)] for hypotheses in live]

    def texts(self, ids):
        return [str(i[0]) for i in ids]


@pytest.mark.parametrize(("steps", "beams", "nearest"), [(3, 4, 12), (3, 1, 3), (9, 4, 20)])
def test_the_nearest_of_each_round_and_of_all_are_kept(learnt, steps, beams, nearest):
    def encode(texts):
        angle = torch.tensor([0.01 * int(t) for t in texts])
        return nn.functional.pad(torch.stack([angle.cos(), angle.sin()], 1), (0, DIMENSION - 2))

    model = Counting(learnt.inversion, learnt.corrector, None, learnt.about)
    assert model.invert(encode(["20", "20"]), encode, steps, beams) == [str(nearest)] * 2
    assert model.widths[:2] == [1, 1]
    assert set(model.widths[2:]) <= {beams}


def test_each_vector_is_inverted_as_if_it_were_alone(learnt):
    vectors = world.encode(world.SECRET)[:3]
    together = learnt.invert(vectors, world.encode, 2, 2)
    assert together == [learnt.invert(v[None], world.encode, 2, 2)[0] for v in vectors]


# ---------------------------------------------------------------- bad folders


def test_folders_that_are_no_such_model_are_one_line(tmp_path):
    settings, inversion, _ = released(tmp_path)
    good, pickled, nowhere = settings.pretrained, tmp_path / "pickled", str(tmp_path / "nowhere")

    def one_line(match, pretrained, corrector=None):
        with refusal(match):
            load(Settings(str(pretrained), corrector))

    one_line("no vec2text model", nowhere)
    put(pickled / "config.json", "{}")
    torch.save(inversion.state_dict(), pickled / "pytorch_model.bin")
    one_line("no model.safetensors; pickled weights", pickled)
    one_line("not vec2text's weights: .*embedding_transform_1.0.weight", good, good)
    no_config = "config.json is not that of a vec2text model"
    one_line(f"{no_config}: .*model_name_or_path", written(tmp_path / "nameless", inversion))
    one_line(no_config, written(tmp_path / "gone", inversion, nowhere))
    narrow = str(tmp_path / "narrow")
    T5Config(vocab_size=5, d_model=16, num_layers=1, num_heads=2).save_pretrained(narrow)
    one_line("not vec2text's weights", written(tmp_path / "thin", inversion, narrow))
    put(tmp_path / "inversion" / "model.safetensors", b"half")
    one_line("no vec2text model", good)
    inversion.extra = nn.Linear(1, 1)
    extra = written(tmp_path / "extra", inversion, str(tmp_path / "t5"))
    one_line("not vec2text's weights: .*not known.*extra", extra)


def test_normalised_or_other_vectors_are_refused(learnt):
    learnt.check(VECTORS)
    with refusal("reads 24 dimensions, and the vectors have 5"):
        learnt.check(torch.randn(4, 5))
    gtr = vec2text.Vec2Text(learnt.inversion, None, None, learnt.about | {"embedder": "gtr_base"})
    with refusal("pooling: mean"):
        gtr.check(nn.functional.normalize(VECTORS))


# ---------------------------------------------------------------- rows and stages


def study_of(settings, corrector=False, **search):
    return world.study_of(vars(settings), corrector, search=search)


def test_rows_name_weights_and_how_often_they_correct():
    settings = Settings("jxm/gtr__nq__32", "jxm/gtr__nq__32__correct")
    assert study_of(settings, corrections=20, width=4).inverters["i"].inverter == settings
    assert study_of(Settings("jxm/gtr__nq__32")).inverters["i"].released
    with pytest.raises(ValueError, match="`corrections` and `width`"):
        study_of(settings, corrections=20, beams=4)
    with pytest.raises(ValueError, match="an inverter with a `corrector`"):
        study_of(Settings("jxm/gtr__nq__32"), corrections=1)
    with pytest.raises(ValueError, match="only a decoder learns one"):
        study_of(settings, corrector=True)


def test_the_stages_attack_raw_vectors_with_the_weights(stored, tmp_path):  # noqa: F811
    study = study_of(released(tmp_path / "hub", train=150)[0], corrections=2, width=2)
    run_stage("train_inverter", study, "i")
    kept, wanted = attacker.load(store.inverters_path("i")).inverter, load(study.inverters["i"].inverter)
    assert all(map(torch.equal, kept.parameters(), wanted.parameters()))
    found = run_stage("invert", study, "r")
    assert found["translated"]["corrected"]["token_f1"] > 0.9 > found["mismatched"]["corrected"]["token_f1"]
    assert found["translated"]["corrected"]["queries"] > 0 == found["translated"]["generated"]["queries"]
