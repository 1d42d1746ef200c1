"""plan: forecast what the current configuration needs, without a GPU."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertline import planning
from bertline.cli.composition import composing
from bertline.cli.overrides import LOCAL
from bertline.config import PipelineConfig, sections_in
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import read_json, sha256_of_json, write_json
from bertline.foundation.progress import say
from bertline.foundation.validation import to_mapping, validate
from bertline.modeling.families import FAMILIES
from bertline.run.provenance import locked_stages

RECORDS = Path("benchmarks/results")


@composing("plan")
def plan(composed: dict[str, Any]) -> None:
    """Forecast what the current configuration needs, without a GPU: steps, memory, hours, money.

        bertline plan plan.device=a100
        bertline plan experiment=bert_base plan.device=h100 plan.num_devices=8 plan.price_per_hour=2.5

    Nothing is trained. The page is printed; runs/plan/FINGERPRINT/plan.json contains all figures. It takes overrides
    of the pipeline's configuration, too.
    """
    asked = validate(planning.PlanConfig, composed["plan"], where="plan")
    config = sections_in(composed)
    if asked.pipeline:
        of_own = "Choices of your own are kept in conf/local: `bertline plan` forecasts their pretraining."
        say(of_own if LOCAL.exists() else default_pipeline())
        return
    if not (family := FAMILIES[config.model.family]).can("forecast"):
        raise ConfigError(
            f"model.family is {family.title}, but plan knows the memory and the operations of BERT's layers alone. "
            "Try some steps instead: pretrain.max_steps=50 shows tokens per second and memory."
        )
    training, outlook = forecast_of(config, asked)
    # The same question writes the same file.
    path = Path(config.runtime.runs_folder) / "plan" / sha256_of_json(composed)[:12] / "plan.json"
    content: dict[str, Any] = {"asked": composed["plan"], "precision": training.device.precision, **asdict(outlook)}
    content |= {name: outlook.total(name) for name in ("steps", "tokens", "targets", "flops", "hours")}
    content |= {"epochs": outlook.epochs, "memory_bytes": outlook.fullest.memory.total, "fits": outlook.fits}
    if asked.price_per_hour is not None:
        content["money"] = outlook.money(asked.price_per_hour)[0]
    write_json(path, content)
    say(f"{planning.page(outlook, training, asked.price_per_hour)}\n\n{path}")


def forecast_of(config: PipelineConfig, asked: planning.PlanConfig) -> tuple[planning.Training, planning.Forecast]:
    """Return the training to plan and its forecast, with as much of the text as is known."""
    if config.corpus.kind == "none" or config.tokenizer.kind == "none":
        raise ConfigError("nothing is pretrained (experiment=finetune), so there is nothing to plan.")
    precision, num_threads = config.pretrain.precision, config.runtime.num_threads
    hardware = planning.GPUS.get(asked.device) or planning.this_machine(precision, num_threads=num_threads)
    changed = planning.outdated_sections(locked_stages(), to_mapping(config))
    given = planning.TextSize(asked.corpus_tokens, "plan.corpus_tokens")
    text = planning.text_size(config.corpus, changed) if asked.corpus_tokens is None else given
    vocab_size = planning.vocab_size(config.tokenizer, changed)
    training = planning.Training(config, vocab_size, hardware.attention_device(precision))
    records = [{**read_json(path), "file": path.name} for path in sorted(RECORDS.glob("pretraining_step_*.json"))]
    measured = [record for record in records if record["tokens_per_s"] is not None]  # None: that side was left out
    return training, planning.forecast(training, hardware, text, num_devices=asked.num_devices, measurements=measured)


def default_pipeline() -> str:
    """Return the forecast of the default pipeline on this machine, from records of benchmarks/default_run.py.

    What trains is scaled by the FLOP/s of large matrix products; reading text and writing reports is not. Between
    precisions only pretraining is scaled: the products of fine-tuning are too small to gain from bf16.
    """
    machine = planning.this_machine("auto", num_threads=None)
    precision, flops = machine.attention_device("auto").precision, machine.bf16_flops or machine.fp32_flops
    records = [read_json(path) for path in sorted(RECORDS.glob("default_run_*.json"))]
    record = min(records, key=lambda one: (one["precision"] != precision, abs(math.log(one["matmul_flops"] / flops))))
    run, slower = record["runs"][0], record["matmul_flops"] / flops
    scaled = ("pretrain", "sweep") if record["precision"] == precision else ("pretrain",)
    added_s = sum((slower - 1) * seconds for name, seconds in run["seconds"].items() if name.startswith(scaled))
    return (
        f"The default pipeline takes about {max(1, round((run['wall_s'] + added_s) / 60))} minutes on this machine "
        f"when nothing else runs ({machine.num_threads} threads, {precision}, {flops / 1e9:,.0f} GFLOP/s), "
        f"{max(1, round(run['seconds']['pretrain'] * slower / 60))} of them pretraining. What is up to date is skipped."
    )
