"""plan: forecast what the current configuration needs, or find the best use of a number of hours, without a GPU.

    python pipelines/plan.py plan.device=a100
    python pipelines/plan.py experiment=bert_base plan.device=h100 plan.num_devices=8 plan.price_per_hour=2.5
    python pipelines/plan.py plan.hours=24 plan.device=a100 corpus=text corpus.path=/path/to/texts

Nothing is trained, and only runs/plan is written. The tables are printed; plan.json contains all figures.
"""

import on_ctrl_c  # noqa: F401

# isort: split
import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import write_json
from bertline.foundation.progress import say
from bertline.foundation.validation import to_mapping, validate
from bertline.modeling.config import ModelConfig
from bertline.modeling.families import FAMILIES
from bertline.orchestration.config import SECTIONS, PipelineConfig, pipeline_config
from bertline.orchestration.stages import ARTIFACTS, METRICS
from bertline.planning.budget import as_override, best_use, overrides_for
from bertline.planning.config import THIS_MACHINE, PlanConfig
from bertline.planning.forecast import Resources, Training, default_run_text, forecast, phases_reached
from bertline.planning.hardware import gpu_named, this_machine
from bertline.planning.interconnect import link_of
from bertline.planning.rates import Rates, read_records
from bertline.planning.report import as_data, best_use_text, candidate_as_data, forecast_text, money
from bertline.planning.text_size import made_as_configured, sections_made_with, text_size, vocab_size
from composition import CONF, plain, recipe

RECORDS = Path("benchmarks/results")
# Keys that define a size of conf/model; an experiment's other changes of the model apply to every size.
SIZE_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "initializer_range")


def main(composed: dict[str, Any]) -> None:
    """Print the plan and write it to runs/plan/FINGERPRINT/plan.json."""
    asked = validate(PlanConfig, composed["plan"], where="plan")
    if asked.pipeline:
        say(pipeline_line())
        return
    config = pipeline_config(without_decay_steps(composed, asked))
    if (family := FAMILIES[config.model.family]).wrapping is not None:
        raise ConfigError(
            f"model.family is {family.title}, but plan knows the memory and the operations of BERT's layers alone. "
            "Try some steps instead: pretrain.max_steps=50 shows tokens per second and memory."
        )
    resources, training = resources_and_training(config, asked)
    if asked.hours is None:
        found = forecast(training, resources)
        text = forecast_text(found, training, resources, asked)
        content = {**as_data(found), "money": money(found.hours, resources, asked)}
    else:
        text, content = plan_of_hours(composed, config, training, resources, asked)
    path = Path(config.runtime.runs_folder) / "plan" / fingerprint(composed) / "plan.json"
    device = {"title": resources.hardware.title, "num_devices": resources.num_devices, "precision": training.precision}
    write_json(path, {"asked": composed["plan"], "device": device, "text": resources.text.basis, **content})
    say(f"{text}\n\n{path}")


def pipeline_line() -> str:
    """Return the forecast of the default pipeline, or where to look if choices of one's own are kept."""
    if (CONF / "local/default.yaml").exists():
        return "Choices of your own are kept in conf/local: python pipelines/plan.py forecasts their pretraining."
    # Imported here, because a plan for a GPU does not need torch, which takes seconds to import.
    import torch

    from bertline.training.devices import resolve_precision
    from bertline.training.matmul_rate import peak_rate

    cpu = torch.device("cpu")
    precision = resolve_precision("auto", cpu)
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("default_run_*.json"))]
    rate = peak_rate(cpu, precision)
    return default_run_text(records, precision=precision, flops=rate, threads=torch.get_num_threads())


def without_decay_steps(composed: dict[str, Any], asked: PlanConfig) -> dict[str, Any]:
    """Return the sections; to plan hours, without `schedule.num_decay_steps`, which may not fit the current phases."""
    sections = {key: composed[key] for key in SECTIONS}
    if asked.hours is not None and decay_steps_of(composed) is not None:
        sections["schedule"] = {**sections["schedule"], "num_decay_steps": None}
    return sections


def decay_steps_of(composed: dict[str, Any]) -> int | None:
    """Return `schedule.num_decay_steps` if it is a number of steps, else None."""
    steps = composed["schedule"].get("num_decay_steps")
    return steps if isinstance(steps, int) and steps >= 0 else None


def resources_and_training(config: PipelineConfig, asked: PlanConfig) -> tuple[Resources, Training]:
    """Return the hardware, rates and text (as far as it is known), and the training to plan."""
    if config.corpus.kind == "none" or config.tokenizer.kind == "none":
        raise ConfigError("nothing is pretrained (experiment=finetune), so there is nothing to plan.")
    runtime, pretrain = config.runtime, config.pretrain
    if asked.device == THIS_MACHINE:
        hardware = this_machine(pretrain.precision, num_threads=runtime.num_threads)
    else:
        hardware = gpu_named(asked.device)
    precision = hardware.precision(pretrain.precision)
    lock = Path("dvc.lock")
    made_with: Any = OmegaConf.to_container(OmegaConf.load(lock)) if lock.exists() else {}
    made_so = made_as_configured(sections_made_with(made_with), to_mapping(config))
    text = text_size(
        config.corpus, artifacts=ARTIFACTS, metrics=METRICS, made_so=made_so, num_tokens=asked.corpus_tokens
    )
    resources = Resources(
        hardware=hardware,
        num_devices=asked.num_devices,
        rates=Rates(hardware, precision, read_records(RECORDS)),
        link=link_of(
            hardware.name,
            asked.num_devices,
            devices_per_node=asked.devices_per_node,
            network_gbit=asked.network_gbit,
        ),
        text=text,
    )
    training = Training(
        model=config.model,
        objective=config.objective,
        vocab_size=vocab_size(config.tokenizer, artifacts=ARTIFACTS, made_so=made_so),
        mask_prob=config.examples.masking.mask_prob,
        phases=phases_reached(pretrain.phases, pretrain.num_steps),
        optimizer=config.optimizer,
        runtime=runtime,
        precision=precision,
    )
    return resources, training


def plan_of_hours(
    composed: dict[str, Any], config: PipelineConfig, training: Training, resources: Resources, asked: PlanConfig
) -> tuple[str, dict[str, Any]]:
    """Return text and data of the best use of the hours, with its overrides, which are validated first."""
    if config.pretrain.extends is not None:
        raise ConfigError("plan.hours plans a new run, but pretrain.extends names one to resume from. Leave it null.")
    group = HydraConfig.get().runtime.choices["model"]
    if config.model.family != "bert":
        raise ConfigError(f"plan.hours compares sizes of BERT; model.family is {config.model.family}. Leave it null.")
    continues = config.pretrain.start_from is not None  # then the checkpoint determines the size
    sizes = {group: config.model} if continues else sizes_of(composed["model"], group)
    use = best_use(training, sizes, resources, asked)
    keeps_rate = continues or not config.optimizer.takes_adamw_rates
    keys = overrides_for(use, training, num_devices=resources.num_devices, keeps_rate=keeps_rate)
    decay, most = decay_steps_of(composed), use.chosen.forecast.steps - use.chosen.num_warmup_steps
    too_long = decay is not None and decay > most
    if too_long:
        keys["schedule.num_decay_steps"] = None
    model = {key: getattr(use.chosen.training.model, key) for key in changed(composed["model"], group)}
    if use.chosen.size != group:
        keys = {**{f"model.{key}": value for key, value in model.items()}, **keys}
    overrides = [*([] if continues else [f"model={use.chosen.size}"]), *(as_override(*item) for item in keys.items())]
    given = [one for one in HydraConfig.get().overrides.task if not one.startswith("plan.")]
    replaced = {one.partition("=")[0] for one in overrides}
    overrides = [*(one for one in given if one.partition("=")[0].lstrip("+") not in replaced), *overrides]
    advised = plain(compose("config", overrides=overrides))
    pipeline_config({key: advised[key] for key in SECTIONS})
    command = ["python pipelines/configure.py " + " ".join(map(shlex.quote, overrides)) + " --save", "dvc repro"]
    content = {
        "candidates": [candidate_as_data(one) for one in use.candidates],
        "chosen": use.chosen.size,
        "overrides": overrides,
        "money": money(use.chosen.forecast.hours, resources, asked),
    }
    if too_long:
        command.append(
            f"# schedule.num_decay_steps is {decay}, more than the {most} steps after the warm-up: null takes a fifth"
        )
    return best_use_text(use, resources, asked, command=command), content


def sizes_of(model: Mapping[str, Any], group: str) -> dict[str, ModelConfig]:
    """Return the sizes of conf/model, with all other keys as in the configured model."""
    sizes = {}
    for path in sorted((CONF / "model").glob("*.yaml")):
        own: Any = OmegaConf.to_container(OmegaConf.load(path))
        if path.stem != group and "family" in own:
            continue  # those of a checkpoint and of other families
        shape = {} if path.stem == group else {key: own[key] for key in SIZE_KEYS}
        sizes[path.stem] = validate(ModelConfig, {**model, **shape}, where="model")
    return sizes


def changed(model: Mapping[str, Any], group: str) -> list[str]:
    """Return the size keys whose configured values differ from the file in conf/model."""
    own: Any = OmegaConf.to_container(OmegaConf.load(CONF / "model" / f"{group}.yaml"))
    return [key for key in SIZE_KEYS if own[key] != model[key]]


def fingerprint(composed: dict[str, Any]) -> str:
    """Return a fingerprint of the configuration, so that the same question writes the same file."""
    return hashlib.sha256(json.dumps(composed, sort_keys=True).encode()).hexdigest()[:12]


if __name__ == "__main__":
    recipe(main, config="plan")()
