"""What a student costs and is worth compared with its teacher: sizes, latencies and test scores, and those in int8."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertline.encoding.sequences import INPUT_NAMES
from bertline.export.onnx import measure_latency, open_session, write_int8, write_onnx
from bertline.export.views import architecture_in, load_view
from bertline.finetuning.task_file import read_task_file
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json
from bertline.foundation.progress import warn
from bertline.modeling.bert import EncoderOutput
from bertline.modeling.checkpoint import WEIGHTS_NAME, Checkpoint
from bertline.modeling.heads import AnswerLogits
from bertline.training.devices import Machine, Ranks


def distillation(sweep: Path, task_folder: Path, teacher: Path) -> dict[str, Any]:
    """Measure the best student of a sweep, in fp32 and int8, and its teacher, in turns on this machine's CPU.

    Returns:
        `rows` with name, parameters, megabytes, ms_1 and ms_32 (batches of `max_length` tokens), score on test, and its
        spread over seeds (None for one model); how many times the teacher's rows the student reads in batches of 32;
        `verdict` on what the teacher brought. Nothing in int8 where the exporter cannot trace a wrapped encoder.
    """
    result, student, graphs = read_json(sweep / "result.json"), sweep / "best", {}
    arms = {"student": result["arms"].get("encoder"), "student_alone": result["arms"].get("without_teacher")}
    scores = {name: (arm["test_mean"], arm["test_std"]) for name, arm in arms.items() if arm}
    scores = {"teacher": (result["teacher"]["test"][result["metric"]], None), **scores}
    folders = {"student": student, "teacher": teacher}
    views = {name: load_view(folder, architecture_in(folder)) for name, folder in folders.items()}
    configs = [Checkpoint.open(folder).config for folder in folders.values()]
    max_length = min(128, *(config.max_position_embeddings for config in configs))
    with tempfile.TemporaryDirectory() as place:
        fp32, int8 = Path(place) / "fp32.onnx", Path(place) / "int8.onnx"
        try:
            write_onnx(views["student"], fp32)
            write_int8(fp32, int8)
            graphs["student_int8"] = int8
            scores["student_int8"] = score_of_graph(int8, student, task_folder, result["metric"]), None
        except (RuntimeError, ArtifactError) as error:
            warn(f"the student has no int8 row, for its ONNX file cannot be made ({str(error).splitlines()[0]}).")
        files = {name: folder / WEIGHTS_NAME for name, folder in folders.items()} | graphs
        megabytes = {name: round(path.stat().st_size / 1e6, 3) for name, path in files.items()}
        measured = measure_latency(views, graphs, max_length=max_length)
    ms, rows = measured.pop("latency_ms"), []
    for name, (score, spread) in scores.items():
        model = "student" if name == "student_alone" else name
        costs = {"megabytes": megabytes[model], **{f"ms_{size}": value for size, value in ms[model].items()}}
        parameters = Checkpoint.open(folders.get(name, student)).num_parameters
        rows.append({"name": name, "parameters": parameters, **costs, "score": score, "spread": spread})
    ratios = {name: round(ms["teacher"]["32"] / ms[name]["32"], 3) for name in ms}
    return {
        "rows": rows,
        "rows_per_s_ratio": ratios["student"],
        "int8_rows_per_s_ratio": ratios.get("student_int8"),
        "verdict": result["comparisons"].get("without_teacher"),
        **measured,
    }


def score_of_graph(file: Path, folder: Path, task_folder: Path, metric: str) -> float:
    """Return the test score of a fine-tuned model whose network an ONNX file computes."""
    finished = read_task_file(folder)
    assert finished is not None  # a sweep writes it
    kind, architecture = finished.kind, architecture_in(folder)
    model: Any = kind.load_model(folder)
    session = open_session(file)
    names = {each.name for each in session.get_inputs()}

    def forward(*inputs: Tensor) -> Any:
        arrays = {name: tensor.numpy() for name, tensor in zip(INPUT_NAMES, inputs, strict=True) if name in names}
        outputs = [torch.from_numpy(output) for output in session.run(None, arrays)]
        if architecture == "BertModel":
            return EncoderOutput(outputs[0], None, outputs[0])
        return AnswerLogits(*outputs) if len(outputs) > 1 else outputs[0]

    (model.bert if architecture == "BertModel" else model).forward = forward  # pooling is not in the graph
    rows = kind.read(task_folder, "test")
    machine = Machine(device=torch.device("cpu"), precision="fp32", compile=False, ranks=Ranks())
    predictions = kind.predict(model, kind.encode(rows, Checkpoint.open(folder).tokenizer), machine)
    return kind.scores(kind.statistics(rows, predictions, finished.calibration))[metric]
