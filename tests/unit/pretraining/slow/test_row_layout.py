"""How rows and attention are chosen for each length, said in the log, and used."""

import torch

import tiny
from bertline.modeling.bert import BertForPreTraining, set_attention

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
VOCAB_SIZE = 61


def test_a_compiled_model_follows_its_kind_and_finds_the_first_graph_again():
    graphs = []

    def backend(graph, _inputs):
        graphs.append(any("scaled_dot_product" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    torch._dynamo.reset()
    config = tiny.model_config(**NO_DROPOUT)
    model = BertForPreTraining(config, vocab_size=VOCAB_SIZE, pad_token_id=0, attention="plain")
    model.compile(backend=backend, dynamic=False)
    ids = torch.randint(5, VOCAB_SIZE, (2, 8))
    outputs = []
    for kind in ("plain", "sdpa", "plain"):
        set_attention(model, kind)
        outputs.append(model(ids, torch.zeros_like(ids), None, torch.zeros(2, 1, dtype=torch.long)).mlm_logits)
    torch._dynamo.reset()
    assert graphs == [False, True]
    assert torch.equal(outputs[0], outputs[2])
    torch.testing.assert_close(outputs[0], outputs[1])
