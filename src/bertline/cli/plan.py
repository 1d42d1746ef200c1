"""plan: forecast what the current configuration needs, without a GPU."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from bertline.cli.composition import composing, sections_in
from bertline.cli.overrides import LOCAL
from bertline.config import PipelineConfig
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import write_json
from bertline.foundation.progress import say
from bertline.foundation.validation import to_mapping, validate
from bertline.modeling.families import FAMILIES
from bertline.planning import (
    THIS_MACHINE,
    Forecast,
    PlanConfig,
    TextSize,
    Training,
    default_run_text,
    forecast,
    gpu_named,
    made_as_configured,
    page,
    phases_reached,
    read_records,
    text_size,
    this_machine,
    vocab_size,
)
from bertline.run.stages import ARTIFACTS, METRICS

RECORDS = Path("benchmarks/results")


@composing("plan")
def plan(composed: dict[str, Any]) -> None:
    """Forecast what the current configuration needs, without a GPU: steps, memory, hours, money.

        bertline plan plan.device=a100
        bertline plan experiment=bert_base plan.device=h100 plan.num_devices=8 plan.price_per_hour=2.5

    Nothing is trained. The page is printed; runs/plan/FINGERPRINT/plan.json contains all figures. It takes overrides
    of the pipeline's configuration, too.
    """
    asked = validate(PlanConfig, composed["plan"], where="plan")
    if asked.pipeline:
        say(pipeline_line())
        return
    config = sections_in(composed)
    if (family := FAMILIES[config.model.family]).wrapping is not None:
        raise ConfigError(
            f"model.family is {family.title}, but plan knows the memory and the operations of BERT's layers alone. "
            "Try some steps instead: pretrain.max_steps=50 shows tokens per second and memory."
        )
    training, outlook = forecast_of(config, asked)
    # The same question writes the same file.
    fingerprint = hashlib.sha256(json.dumps(composed, sort_keys=True).encode()).hexdigest()[:12]
    path = Path(config.runtime.runs_folder) / "plan" / fingerprint / "plan.json"
    content: dict[str, Any] = {"asked": composed["plan"], "precision": training.device.precision, **asdict(outlook)}
    content |= {name: outlook.total(name) for name in ("steps", "tokens", "targets", "flops", "hours")}
    content |= {"epochs": outlook.epochs, "memory_bytes": outlook.fullest.memory.total, "fits": outlook.fits}
    content |= {} if asked.price_per_hour is None else {"money": outlook.money(asked.price_per_hour)[0]}
    write_json(path, content)
    say(f"{page(outlook, training, asked.price_per_hour)}\n\n{path}")


def forecast_of(config: PipelineConfig, asked: PlanConfig) -> tuple[Training, Forecast]:
    """Return the training to plan and its forecast, with as much of the text as is known."""
    if config.corpus.kind == "none" or config.tokenizer.kind == "none":
        raise ConfigError("nothing is pretrained (experiment=finetune), so there is nothing to plan.")
    runtime, pretrain = config.runtime, config.pretrain
    if asked.device == THIS_MACHINE:
        hardware = this_machine(pretrain.precision, num_threads=runtime.num_threads)
    else:
        hardware = gpu_named(asked.device)
    lock = Path("dvc.lock")
    made_with: Any = OmegaConf.to_container(OmegaConf.load(lock)) if lock.exists() else {}
    made_so = made_as_configured(made_with, to_mapping(config))
    if asked.corpus_tokens is None:
        text = text_size(config.corpus, artifacts=ARTIFACTS, metrics=METRICS, made_so=made_so)
    else:
        text = TextSize(tokens=asked.corpus_tokens, basis="plan.corpus_tokens")
    training = Training(
        model=config.model,
        objective=config.objective,
        vocab_size=vocab_size(config.tokenizer, artifacts=ARTIFACTS, made_so=made_so),
        mask_prob=config.examples.masking.mask_prob,
        phases=phases_reached(pretrain.phases, pretrain.num_steps),
        optimizer=config.optimizer,
        runtime=runtime,
        device=hardware.attention_device(hardware.precision(pretrain.precision)),
    )
    records = read_records(RECORDS)
    return training, forecast(training, hardware, text, num_devices=asked.num_devices, records=records)


def pipeline_line() -> str:
    """Return the forecast of the default pipeline, or where to look if choices of one's own are kept."""
    if LOCAL.exists():
        return "Choices of your own are kept in conf/local: `bertline plan` forecasts their pretraining."
    # Imported here, because a plan for a GPU does not need torch, which takes seconds to import.
    import torch

    from bertline.training.devices import resolve_precision
    from bertline.training.matmul_rate import peak_rate

    cpu = torch.device("cpu")
    precision = resolve_precision("auto", cpu)
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("default_run_*.json"))]
    rate = peak_rate(cpu, precision)
    return default_run_text(records, precision=precision, flops=rate, threads=torch.get_num_threads())
