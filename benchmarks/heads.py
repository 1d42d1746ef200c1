"""What attention heads know of the relations of UD English EWT, for several encoders: chosen on dev, scored on test.

python benchmarks/heads.py default=artifacts/pretrain minilm=FOLDER          # prints tables
python benchmarks/heads.py default=artifacts/pretrain ... --keep             # records them in results/heads.json

With `--tokenizer FOLDER` (BERT's vocabulary) an encoder of the shape of BERT-base with random weights is measured for
its time alone. A head beats the offset, or falls behind it, beyond noise by the jackknife over documents, adjusted for
the number of relations (Holm). The last line is JSON.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from look import SHAPES, write_shape
from measurements import HERE, keep, parser_of

import bertline
from bertline.foundation.parallel import processor_name
from bertline.inside.heads import ablate_language_model, measure_heads, table_of
from bertline.tasks.treebank import read_treebank

DATA = HERE.parents[1] / "shared/data/tasks/ud_english_ewt"
ABLATION_SENTENCES = 200


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("encoders", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--tokenizer", type=Path)
    arguments = parser.parse_args()
    dev, test = (arguments.data / f"en_ewt-ud-{split}.conllu" for split in ("dev", "test"))
    encoders: dict[str, Any] = {}
    for named in arguments.encoders:
        name, _, folder = named.partition("=")
        model, started = bertline.load(folder), time.monotonic()
        content = measure_heads(model, dev, test)
        took_s = time.monotonic() - started
        print(f"\n{name}\n{table_of(content)}\n")
        for row in content["relations"].values():
            del row["grid"]
        verdicts = {name: row["verdict"] for name, row in content["relations"].items()}
        of_verdict = {
            verdict: [name for name in verdicts if verdicts[name] == verdict]
            for verdict in ("better", "not shown", "worse")
        }
        config = model.encoder.config
        encoders[name] = {
            "layers": config.num_hidden_layers,
            "heads": config.num_attention_heads,
            "hidden_size": config.hidden_size,
            "best_head_against_best_offset": of_verdict,
            "took_s": round(took_s, 1),
            **{key: value for key, value in content.items() if key not in ("notes", "versions")},
        }
        if hasattr(model.model, "mlm_logits"):
            encoders[name]["ablation"] = ablate_language_model(model, read_treebank(test), ABLATION_SENTENCES)
    summary: dict[str, Any] = {name: _in_short(one) for name, one in encoders.items()}
    if arguments.tokenizer:
        with tempfile.TemporaryDirectory() as work:
            folder = write_shape(Path(work) / "base", arguments.tokenizer, *SHAPES["bert_base"][:3])
            started = time.monotonic()
            measure_heads(bertline.load(str(folder)), dev, test)
            summary["bert_base_shape"] = {"took_s": round(time.monotonic() - started, 1)}
    record = {
        "treebank": "UD English EWT, chosen on dev, scored on test",
        "notes": content["notes"],
        "device": processor_name(),
        "versions": content["versions"],
        "summary": summary,
        "encoders": encoders,
    }
    keep("heads", record, arguments)
    print(json.dumps(summary))


def _in_short(encoder: dict[str, Any]) -> dict[str, Any]:
    counts = {verdict: len(names) for verdict, names in encoder["best_head_against_best_offset"].items()}
    return {"took_s": encoder["took_s"], **counts, "parsing": encoder["parsing"]["encoder"]["accuracy"]}


if __name__ == "__main__":
    main()
