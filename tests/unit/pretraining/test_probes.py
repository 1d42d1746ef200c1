import pytest
import torch

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import read_json_lines
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.initialization import initialize
from bertline.pretraining.config import MaskPredictionsConfig
from bertline.pretraining.probes import MaskPredictionProbe, mask_predictions_text
from bertline.tokenization.byte_bpe import train_byte_bpe
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine, Ranks


@pytest.fixture
def make_probe(make_job, tmp_path):
    def make(*sentences: str, rank: int = 0) -> MaskPredictionProbe:
        job = make_job()
        tokenizer = Tokenizer.load(job.tokenizer_folder)
        model = BertForPreTraining(job.model, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id)
        initialize(model, job.model, seed=0)
        machine = Machine(device=torch.device("cpu"), precision="fp32", compile=False, ranks=Ranks(rank=rank))
        config = MaskPredictionsConfig(every_steps=5, sentences=sentences, num_guesses=3)
        path = tmp_path / "mask_predictions.jsonl"
        return MaskPredictionProbe(model, tokenizer, config, path, machine=machine)

    return make


def test_a_frame_has_the_likeliest_tokens_of_each_sentence(make_probe, tmp_path):
    make_probe("the [MASK] sat.", "the cat [MASK].").probe(5)
    rows = read_json_lines(tmp_path / "mask_predictions.jsonl")
    assert [(row["step"], row["sentence"]) for row in rows] == [(5, "the [MASK] sat."), (5, "the cat [MASK].")]
    for row in rows:
        probabilities = [probability for _, probability in row["guesses"]]
        assert len(probabilities) == 3 and probabilities == sorted(probabilities, reverse=True)
        assert all(isinstance(token, str) and 0 < probability < 1 for token, probability in row["guesses"])


def test_rows_of_the_embeddings_behind_the_tokens_are_not_guessed(make_probe, tmp_path):
    probe = make_probe("the [MASK] sat.")
    tokens = probe.tokenizer.vocab
    config = probe.model.bert.config
    probe.model = BertForPreTraining(config, vocab_size=len(tokens) + 30, pad_token_id=0)
    initialize(probe.model, config, seed=0)
    torch.nn.init.constant_(probe.model.mlm_head.bias[len(tokens) :], 50.0)
    probe.probe(5)
    (row,) = read_json_lines(tmp_path / "mask_predictions.jsonl")
    assert {token for token, _ in row["guesses"]} <= set(tokens)


def test_the_guesses_are_the_models_at_the_first_blank(make_probe, tmp_path):
    probe = make_probe("the [MASK] sat [MASK].")
    tokenizer, model = probe.tokenizer, probe.model
    ids = torch.tensor([[tokenizer.cls_id, *tokenizer.encode("the [MASK] sat [MASK]."), tokenizer.sep_id]])
    model.eval()
    logits = model(ids, torch.zeros_like(ids), torch.ones_like(ids), torch.tensor([[2]])).mlm_logits[0, 0]
    probe.probe(0)
    guesses = read_json_lines(tmp_path / "mask_predictions.jsonl")[0]["guesses"]
    assert [token for token, _ in guesses] == tokenizer.tokens(logits.topk(3).indices.tolist())


def test_the_blank_of_a_sentence_is_the_mask_of_any_tokenizer(make_probe):
    probe = make_probe()
    probe.tokenizer = train_byte_bpe(["the cat sat."], vocab_size=262, min_frequency=1)
    ids, position = probe._encode("the [MASK] sat.")
    assert ids[0, position] == probe.tokenizer.mask_id and (ids == probe.tokenizer.mask_id).sum() == 1
    assert ids[0, 0] == probe.tokenizer.cls_id and ids[0, -1] == probe.tokenizer.sep_id


def test_frames_after_a_step_are_dropped_and_a_torn_line_with_them(make_probe, tmp_path):
    probe = make_probe("the [MASK] sat.")
    for step in (0, 5, 10):
        probe.probe(step)
    with (tmp_path / "mask_predictions.jsonl").open("a") as handle:
        handle.write('{"step": 15, "sent')
    probe.keep_up_to(5)
    assert [row["step"] for row in read_json_lines(tmp_path / "mask_predictions.jsonl")] == [0, 5]


def test_other_ranks_write_nothing(make_probe, tmp_path):
    make_probe("the [MASK] sat.", rank=1).probe(0)
    assert not list(tmp_path.glob("mask_predictions.*"))


def test_the_text_for_people_holds_what_the_records_hold(make_probe, tmp_path):
    probe = make_probe("the [MASK] sat.", "the cat [MASK].")
    for step in (0, 5, 10):
        probe.probe(step)
    text = (tmp_path / "mask_predictions.txt").read_text()
    assert text == mask_predictions_text(read_json_lines(tmp_path / "mask_predictions.jsonl"))
    first, second = text.split("\n\n")
    assert [line.split()[0] for line in first.splitlines()] == ["the", "10", "5", "0"]
    assert second.startswith("the cat [MASK].")
    probe.keep_up_to(5)
    text = (tmp_path / "mask_predictions.txt").read_text()
    assert [line.split()[0] for line in text.split("\n\n")[0].splitlines()] == ["the", "5", "0"]


def test_a_sentence_longer_than_the_model_is_an_error(make_probe):
    with pytest.raises(ConfigError, match=r"mask_predictions\.sentences.*positions for 32"):
        make_probe("[MASK] " + "cat " * 40)
