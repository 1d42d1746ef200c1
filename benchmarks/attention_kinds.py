"""Time an encoder layer, forward and backward, by kind of attention and sequence length.

    python benchmarks/attention_kinds.py --device cpu --hidden 128 --heads 2

The rules of `bertline.modeling.attention_choice.choose_attention` are based on these times. The shortest of many
repetitions counts, because other processes may use the machine.
"""

import argparse
import time

import repository_source  # noqa: F401
import torch

from bertline.modeling.attention import AttentionKind, padded_scope
from bertline.modeling.config import ModelConfig
from bertline.modeling.layers import EncoderLayer

KINDS: tuple[AttentionKind, ...] = ("eager", "plain", "sdpa")
TOKENS = 4096


def main() -> None:
    """Print a table of tokens per second by length and kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {arguments}")
    for length in arguments.lengths:
        rates = {kind: TOKENS / shortest_step(kind, length, arguments) for kind in KINDS}
        print(f"length {length:4d}: " + "  ".join(f"{kind} {rate / 1e3:7.1f} k/s" for kind, rate in rates.items()))


def shortest_step(kind: AttentionKind, length: int, arguments: argparse.Namespace) -> float:
    """Return the seconds of the fastest forward and backward pass in bf16."""
    config = ModelConfig(
        hidden_size=arguments.hidden,
        num_hidden_layers=1,
        num_attention_heads=arguments.heads,
        intermediate_size=4 * arguments.hidden,
        max_position_embeddings=512,
        type_vocab_size=2,
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.02,
        layer_norm_eps=1e-12,
    )
    device = torch.device(arguments.device)
    layer = EncoderLayer(config, attention=kind).to(device)
    if arguments.compile:
        layer.compile()
    hidden_states = torch.randn(TOKENS // length, length, arguments.hidden, device=device, requires_grad=True)
    scope = padded_scope(torch.ones(TOKENS // length, length, dtype=torch.long, device=device))
    times = []
    for _ in range(arguments.repetitions):
        started = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16):
            output = layer(hidden_states, scope)
        output.float().sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    main()
