"""The planner: parameters, FLOPs, memory, hours and money checked against models, real steps and figures by hand."""

from __future__ import annotations

import dataclasses
import gzip
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from torch.utils.flop_counter import FlopCounterMode

from bertline import planning
from bertline.cli import plan as plan_command
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import write_json
from bertline.foundation.manifests import write_manifest
from bertline.foundation.validation import validate
from bertline.modeling.attention_choice import AttentionDevice
from bertline.modeling.bert import BertForMaskedLM, BertForPreTraining
from bertline.modeling.config import ModelConfig
from bertline.planning import GPUS, Forecast, Hardware, PlanConfig, TextSize, Training, step_memory, text_size
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.objectives.base import Mlm
from bertline.pretraining.objectives.sentence_pairs import MlmNsp
from bertline.tokenization.config import ExistingTokenizerConfig, ExtendedTokenizerConfig, TrainedTokenizerConfig
from bertline.training.config import RuntimeConfig
from bertline.training.optimizers import OptimizerConfig
from reading import TextCorpusConfig

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
PAPER = ((900_000, 128, 256), (100_000, 512, 256))
UNKNOWN_TEXT = TextSize(tokens=None, basis="unknown")
CPU = {precision: AttentionDevice(type="cpu", precision=precision) for precision in ("fp32", "bf16")}  # type: ignore[arg-type]


def content(name: str) -> dict[str, Any]:
    return OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml"), resolve=False)  # type: ignore[return-value]


def model(size: str, *, dropout: float | None = None) -> ModelConfig:
    changes = {} if dropout is None else {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return validate(ModelConfig, {**content(f"model/{size}"), **changes})


def optimizer(preset: str) -> OptimizerConfig:
    section = OmegaConf.create({"optimizer": OmegaConf.load(CONF / f"optimizer/{preset}.yaml")})
    chosen: Any = OmegaConf.to_container(section, resolve=True)
    return validate(OptimizerConfig, chosen["optimizer"])  # type: ignore[arg-type]


def training(size: str, *phases: tuple[int, int, int], dropout: float | None = None, **changes: Any) -> Training:
    """Of steps, length and batch of each phase, in bf16 on an A100 with 30,522 tokens, unless changed."""
    own = {name: changes.pop(name) for name in ("objective", "optimizer", "vocab_size", "device") if name in changes}
    runtime = {**content("runtime/default"), "launcher": content("runtime/launcher/local"), **changes}
    runtime.pop("defaults")  # Hydra's
    config: Any = SimpleNamespace(
        model=model(size, dropout=dropout),
        objective=own.get("objective", MlmNsp(kind="mlm_nsp", nsp_weight=1.0)),
        examples=SimpleNamespace(masking=SimpleNamespace(mask_prob=0.15)),
        pretrain=SimpleNamespace(
            phases=[PhaseConfig(steps=a, max_length=b, global_batch_size=c) for a, b, c in phases],
            num_steps=sum(steps for steps, _, _ in phases),
        ),
        optimizer=own.get("optimizer", optimizer("adamw")),
        runtime=validate(RuntimeConfig, runtime),
    )
    return Training(config, own.get("vocab_size", 30_522), own.get("device", GPUS["a100"].attention_device("bf16")))


def plan(of: Training, device: str = "a100", *, text: TextSize = UNKNOWN_TEXT, num_devices: int = 1) -> Forecast:
    return planning.forecast(of, GPUS[device], text, num_devices)


def tokens(number: float) -> TextSize:
    return TextSize(tokens=number, basis="plan.corpus_tokens")


def record(**changes: Any) -> dict[str, Any]:
    """BERT-base of 128 tokens on an H200 at 500,000 tokens/s."""
    figures = {"tokens_per_s": 500_000.0, "flops_per_token": 514_986_984.0, "dropout": 0.1, "threads": 8}
    return {"file": "measured", "device": "NVIDIA H200", "precision": "bf16", "seq_len": 128, **figures, **changes}


def small_bert(of: Training, attention: Any = "plain") -> Any:
    kind = BertForPreTraining if of.config.objective.with_pooler else BertForMaskedLM
    return kind(of.config.model, vocab_size=of.vocab_size, pad_token_id=0, attention=attention)


def step_of(net: Any, *, sequences: int, length: int, targets: int, vocabulary: int) -> torch.Tensor:
    ids = torch.randint(5, vocabulary, (sequences, length))
    output = net(ids, torch.zeros_like(ids), None, torch.arange(targets).expand(sequences, targets))
    labels = torch.randint(5, vocabulary, (sequences * targets,))
    loss = torch.nn.functional.cross_entropy(output.mlm_logits.float().view(-1, vocabulary), labels)
    return loss if len(output) == 1 or isinstance(net, BertForMaskedLM) else loss + output.nsp_logits.float().sum()


@pytest.mark.parametrize("objective", [MlmNsp(kind="mlm_nsp", nsp_weight=1.0), Mlm(kind="mlm")])
def test_parameters_and_flops_are_those_that_pytorch_counts(objective: Any) -> None:
    of = training("tiny", (3, 64, 8), objective=objective, vocab_size=300)
    net, found = small_bert(of), plan(of)
    assert found.parameters == sum(weight.numel() for weight in net.parameters())
    with FlopCounterMode(display=False) as counter:
        step_of(net, sequences=8, length=64, targets=of.targets(64), vocabulary=300).backward()
    # Pooler and NSP head are left out of the one, biases and norms are counted in the other.
    assert 3 * counter.get_total_flops() == pytest.approx(found.total("flops"), rel=0.05)


def test_base_as_in_the_paper_on_one_a100_by_hand() -> None:
    found = plan(training("base", *PAPER), text=tokens(3.3e9))
    assert (found.parameters, found.encoder_parameters) == (110_106_428, 85_054_464)
    assert found.embedding_parameters == (30_522 + 512 + 2 + 2) * 768
    assert found.total("tokens") == 900_000 * 256 * 128 + 100_000 * 256 * 512
    assert found.total("targets") == pytest.approx(0.15 * (900_000 * 256 * 125 + 100_000 * 256 * 509))
    # 6 x 85,054,464 + 12 x (11 + r) x 768 x S + 6 x P / S x (768^2 + 768 x 30,522), P = 19 of 128 positions, less
    # 6 x (1 - r) x 5,906,688, what a layer has besides keys and values, with r = (P + 1) / S.
    assert found.phases[0].flops == 29_491_200_000 * (510_326_784 + 13_160_448 + 21_402_360 - 29_902_608)
    # A fraction of 0.24 of 312 TFLOP/s, 15.2 and 7.3 x 10^18 operations.
    assert [phase.hours for phase in found.phases] == pytest.approx([56.34, 26.96], abs=0.01)
    assert found.hours() == pytest.approx((83.31, 83.31 / 2, 83.31 / 0.75), abs=0.01)
    # 3.3e9 tokens are 26.4 M sequences of 128 and 6.48 M of 512.
    assert [phase.epochs for phase in found.phases] == pytest.approx([8.727, 3.949], abs=0.001)
    assert found.epochs == pytest.approx(12.676, abs=0.001)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("objective", [MlmNsp(kind="mlm_nsp", nsp_weight=1.0), Mlm(kind="mlm")])
def test_weights_gradients_and_the_state_of_the_optimizer_are_exact(kind: str, objective: Any) -> None:
    chosen = optimizer(kind)
    of = training("tiny", objective=objective, vocab_size=300, optimizer=chosen, device=CPU["fp32"])
    net = small_bert(of)
    built = chosen.build(net)
    step_of(net, sequences=2, length=16, targets=3, vocabulary=300).backward()
    built.step()
    estimate = step_memory(of, 16, 2)
    assert estimate.weights == sum(weight.nbytes for weight in net.parameters())
    assert estimate.gradients == sum(weight.grad.nbytes for weight in net.parameters() if weight.grad is not None)
    state = [value for one in built.state.values() for value in one.values() if torch.is_tensor(value)]
    assert estimate.optimizer == sum(value.nbytes for value in state if value.ndim)  # without counters of steps


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
# On a CPU PyTorch's fused attention has no dropout.
@pytest.mark.parametrize(("attention", "dropout"), [("sdpa", 0.0), ("plain", 0.0), ("plain", 0.1)])
def test_what_a_step_keeps_for_its_backward_pass_is_within_a_quarter_of_the_estimate(
    precision: Any, attention: str, dropout: float
) -> None:
    sequences, length, vocabulary = 8, 64, 1000
    of = training("tiny", vocab_size=vocabulary, dropout=dropout, attention=attention, device=CPU[precision])
    net, targets, kept = small_bert(of, attention), of.targets(length), {}

    def remember(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"),
    ):
        step_of(net, sequences=sequences, length=length, targets=targets, vocabulary=vocabulary)
    weights = {weight.untyped_storage().data_ptr() for weight in net.parameters()}
    measured = sum(size for place, size in kept.items() if place not in weights)
    estimate = step_memory(of, length, sequences)
    softmax_and_copies = sequences * targets * vocabulary * 4 + estimate.weights - 4 * of.num_parameters
    assert measured == pytest.approx(estimate.activations + softmax_and_copies, rel=0.25)


@pytest.mark.parametrize("size", ["tiny", "base", "large"])
@pytest.mark.parametrize("gigabytes", [2, 16, 80])
def test_the_largest_micro_batch_fits_and_twice_that_does_not(size: str, gigabytes: int) -> None:
    of, usable = training(size), gigabytes * 10**9
    largest = planning.largest_fitting(of, 128, usable)
    assert step_memory(of, 128, 2 * largest or 1).total > usable >= step_memory(of, 128, largest).total * bool(largest)
    assert bool(largest) or (gigabytes == 2 and size != "tiny")


def test_more_devices_than_sequences_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"phases\[1\]\.global_batch_size is 8, fewer than the 16 devices"):
        plan(training("tiny", (9, 64, 16), (9, 128, 8)), num_devices=16)


@pytest.mark.parametrize(
    ("packing", "attention", "dropout", "fill", "share"),
    [("on", "auto", 0.1, 0.9, 0.9), ("off", "auto", 0.0, 0.5, 1.0), ("auto", "auto", 0.0, 0.9, 0.9),
     ("auto", "sdpa", 0.0, 0.9, 1.0), ("auto", "auto", 0.1, 0.5, 0.5)],
)  # fmt: skip
def test_padding_takes_time_where_rows_are_padded(
    packing: str, attention: str, dropout: float, fill: float, share: float
) -> None:
    text = TextSize(tokens=1e5, basis="", lengths={128: (1000, 1000 * 128 * fill)})
    of = training("base", (10, 128, 100), packing=packing, attention=attention, dropout=dropout)
    found, full = plan(of, text=text), plan(of)
    assert found.total("flops") == pytest.approx(fill * full.total("flops"))
    assert found.total("hours") == pytest.approx(share * full.total("hours"))
    assert (found.epochs, full.epochs) == (1.0, None)


def rate(size: str, *records: dict[str, Any], device: str = "h200") -> planning.Rate:
    hardware = GPUS[device]
    of = training(size, device=hardware.attention_device("auto"))
    return planning.rate_of(of, 128, hardware, records)


def test_the_nearest_record_is_taken_by_length_then_model_then_dropout() -> None:
    other_dropout, longer = record(file="dropout", dropout=0.0), record(file="longer", seq_len=512)
    larger = record(file="larger", flops_per_token=1e9)
    assert rate("base", longer, larger, other_dropout, record()).basis == "measured: measured"
    assert rate("base", longer, larger, other_dropout)[1:] == (0.7, 1.3, "measured on the model nearest to it: dropout")
    assert rate("base", longer, larger).flops_per_s == 500_000 * 1e9
    assert "longer" in rate("base", longer).basis


@pytest.mark.parametrize(
    "changes",
    [{"device": "NVIDIA A100-SXM4-80GB"}, {"precision": "fp32"}, {"seq_len": 1024}, {"flops_per_token": 1e8},
     {"flops_per_token": 3e9}],
    ids=["device", "precision", "length", "smaller", "larger"],
)  # fmt: skip
def test_what_was_measured_elsewhere_or_on_other_models_is_not_used(changes: dict[str, Any]) -> None:
    found = rate("base", record(**changes))
    assert found.flops_per_s == pytest.approx(0.24 * 989e12)
    assert found.basis.startswith("not measured: 24.0% of 989 TFLOP/s in bf16 (data sheet)")
    assert found.slowest < 1 < found.fastest
    assert rate("tiny", device="t4").flops_per_s == pytest.approx(0.4 * 8.1e12)  # fp32


def test_the_default_pipeline_scales_what_trains_by_the_rate_of_products(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"corpus": 60.0, "pretrain": 120.0, "sweep@a": 200.0, "sweep@b": 160.0, "export": 60.0}
    in_bf16 = {"precision": "bf16", "matmul_flops": 4e11, "runs": [{"wall_s": 720.0, "seconds": seconds}]}
    in_fp32 = {**in_bf16, "precision": "fp32", "matmul_flops": 1e11}
    for number, (records, bf16_flops, fp32_flops, expected) in enumerate(
        [
            ([in_bf16], 4e11, 4e11, (12, 2)),
            ([in_bf16], 2e11, 2e11, (20, 4)),
            ([in_bf16], None, 1e11, (18, 8)),  # of another precision: only pretraining is scaled
            ([in_bf16, in_fp32], None, 1e11, (12, 2)),
        ]
    ):
        for place, content in enumerate(records):
            write_json(here / f"{number}/default_run_{place}.json", content)
        machine = Hardware("cpu", "", bf16_flops, fp32_flops, 1e10, num_threads=2)
        monkeypatch.setattr(plan_command, "RECORDS", here / str(number))
        monkeypatch.setattr(planning, "this_machine", lambda asked, num_threads, machine=machine: machine)
        found = re.findall(r"(\d+) minutes .* (\d+) of them pretraining", plan_command.default_pipeline())
        assert found == [tuple(map(str, expected))]


def test_the_data_rule_counts_targets_per_parameter_and_epochs() -> None:
    of = training("base", *PAPER)
    enough, repeated = plan(of, text=tokens(3.3e9)), plan(of, text=tokens(1e9))
    text = planning.data_rule(enough, of)
    assert f"are {enough.total('targets') / 85_054_464:.3g} per parameter of the layers, enough." in text
    assert "that is 26.7 epochs; this run makes 12.7." in text
    assert "makes 41.8: more text would teach more." in planning.data_rule(repeated, of)
    short = training("base", (1000, 128, 256))
    assert re.search("too few.* makes an unknown number", planning.data_rule(plan(short), short))


def test_the_size_rule_says_what_fits_and_how() -> None:
    of = training("base", *PAPER)
    found = plan(of, "rtx3090")
    advised = found.fitting_micro_batch_size
    assert not found.fits
    assert f"DOES NOT FIT. It does with runtime.micro_batch_size={advised}," in planning.size_rule(found)
    taken = plan(training("base", *PAPER, micro_batch_size=advised), "rtx3090")
    assert taken.fits and taken.hours() == found.hours()
    assert not plan(training("base", *PAPER, micro_batch_size=2 * advised), "rtx3090").fits
    assert re.match(r"18 bytes per parameter .* This run fits\.$", planning.size_rule(taken))
    nothing = dataclasses.replace(found.hardware, memory_bytes=2e9)
    assert "not even one sequence" in planning.size_rule(planning.forecast(of, nothing, UNKNOWN_TEXT, 1))


# As `torch.cuda.get_device_name` says them.
NAMES = {
    "Tesla T4": {"t4"}, "Tesla V100-SXM2-16GB": {"v100", "v100_32gb"}, "NVIDIA A10": {"a10"}, "NVIDIA A10G": {"a10g"},
    "NVIDIA A30": {"a30"}, "NVIDIA A40": {"a40"}, "NVIDIA RTX A6000": {"a6000"}, "NVIDIA L4": {"l4"},
    "NVIDIA RTX 6000 Ada Generation": set(), "NVIDIA A100-SXM4-80GB": {"a100", "a100_40gb"}, "NVIDIA L40S": {"l40s"},
    "NVIDIA H100 80GB HBM3": {"h100"}, "NVIDIA H100 PCIe": {"h100_pcie"}, "NVIDIA H200": {"h200"},
    "NVIDIA B200": {"b200"}, "NVIDIA GeForce RTX 3090": {"rtx3090"}, "NVIDIA GeForce RTX 3090 Ti": set(),
    "NVIDIA GeForce RTX 4090": {"rtx4090"}, "NVIDIA GeForce RTX 4090 D": set(), "NVIDIA GeForce RTX 5090": {"rtx5090"},
}  # fmt: skip


def test_a_device_is_recognised_by_the_name_that_pytorch_gives_and_by_no_other() -> None:
    found = {name: {key for key, one in GPUS.items() if re.search(one.pattern, name)} for name in NAMES}
    assert found == NAMES
    assert set().union(*NAMES.values()) == set(GPUS)


def test_bf16_where_there_is_none_is_refused() -> None:
    precisions = [GPUS[name].attention_device("auto").precision for name in ("v100", "a100")]
    assert precisions == ["fp32", "bf16"]
    with pytest.raises(ConfigError, match=r"pretrain\.precision is bf16.*no bf16 in hardware"):
        GPUS["v100"].attention_device("bf16")


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"device": "CPU", "num_devices": 2}, "this machine: give 1"), ({"device": "gtx"}, "plan: device is 'gtx'")],
)
def test_devices_that_cannot_be_planned_for_are_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        validate(PlanConfig, {**content("plan")["plan"], "num_devices": 1, **changes}, where="plan")


def corpus(cls: Any, kind: str, /, **changes: Any) -> Any:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed: Any = OmegaConf.to_container(compose(f"corpus/{kind}"))["corpus"]
    return validate(cls, {**composed, **changes})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a folder without artifacts."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("copies", [1, 10])
def test_examples_that_are_made_are_counted_unless_they_are_of_another_text(here: Path, copies: int) -> None:
    facts = {"train": {"examples": 600 * copies, "tokens": 36_000 * copies}}
    manifest = {"dupe_factor": copies, "corpus": {"train": {"tokens": 34_000}}, "lengths": {"64": facts}}
    write_manifest(here / "artifacts/examples", kind="examples", format_version=1, content=manifest)
    (here / "a.txt").write_text("x" * 4000)
    config = corpus(TextCorpusConfig, "text", path=str(here / "a.txt"))
    text = text_size(config, set())
    assert (text.tokens, text.epoch(64), text.epoch(128)) == (34_000, (600, 60), (34_000 / 125, 128))
    assert text_size(config, {"corpus"}).tokens == text_size(config, {"tokenizer"}).tokens == 1000


def test_a_text_without_examples_is_estimated_from_its_characters_or_files(here: Path) -> None:
    (here / "a.txt.gz").write_bytes(gzip.compress(b"x" * 900))
    size = (here / "a.txt.gz").stat().st_size
    config = corpus(TextCorpusConfig, "text", path=str(here / "a.txt.gz"))
    assert text_size(config, set()).tokens == 3 * size / 4
    write_json(here / "artifacts/metrics/corpus.json", {"train/characters": 8000})
    assert text_size(config, {"tokenizer"}).tokens == 2000
    assert text_size(config, {"corpus"}).tokens == 3 * size / 4


def test_the_lock_says_what_artifacts_were_made_with() -> None:
    made = {"corpus": {"kind": "python_docs"}, "python_docs": {"held_out_fraction": 0.1}, "tokenizer": {"size": 9}}
    lock = {"corpus": {"params": {"params.yaml": made}}, "configure": {"cmd": "python"}}
    assert planning.outdated_sections(lock, made) == planning.outdated_sections({}, made) == set()
    assert planning.outdated_sections(lock, {**made, "tokenizer": {}, "other": {}}) == {"tokenizer"}


def test_the_vocabulary_is_the_one_made_else_as_configured_and_none_is_fetched(here: Path) -> None:
    write_json(here / "artifacts/tokenizer/manifest.json", {"vocab_size": 7000})
    trained = validate(TrainedTokenizerConfig, content("tokenizer/wordpiece"))
    assert [planning.vocab_size(trained, changed) for changed in (set(), {"tokenizer"})] == [7000, 8192]
    (here / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]))
    settings: Any = {"revision": None, "lowercase": True, "user_words": (), "compare": ()}
    more = {"kind": "extended", "num_new": 50, "min_frequency": 9, "sample_characters": 9, **settings}
    for path, expected in ((str(here), 7), ("google-bert/bert-base-uncased", 30_522)):
        existing = ExistingTokenizerConfig(kind="existing", path=path, **settings)
        extended = ExtendedTokenizerConfig(path=path, **more)
        sizes = [planning.vocab_size(one, {"tokenizer"}) for one in (existing, extended)]
        assert sizes == [expected, expected + 50]
