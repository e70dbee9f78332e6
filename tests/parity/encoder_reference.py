"""transformers as reference for encoders, on small random models with every head.

make DIR:  for each model a folder DIR/<name> with config.json and model.safetensors as transformers writes them, and
           expected.safetensors: tokens with padding, their lengths and types, targets, results, loss and gradients,
           computed in fp64.
check DIR: strictly loads what gputrain wrote to DIR/<name>/ours, and compares the results with those gputrain computed.
"""
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

LENGTHS = torch.tensor([20, 13, 1, 7])
VOCABULARY, CLASSES, CHANNELS = 97, 5, 30
NAMES = ["O", "B-per: son", "I", "it's", "Ü"]  # of the classes
SIZES = dict(vocab_size=VOCABULARY, hidden_size=CHANNELS, num_hidden_layers=2, num_attention_heads=3, pad_token_id=0,
             id2label=dict(enumerate(NAMES)), label2id={name: i for i, name in enumerate(NAMES)})
BERT = SIZES | dict(intermediate_size=44, max_position_embeddings=24, type_vocab_size=3, hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0)
ROBERTA = BERT | dict(max_position_embeddings=26, type_vocab_size=1, pad_token_id=1)
DISTILBERT = SIZES | dict(hidden_dim=44, max_position_embeddings=24, dropout=0.0, attention_dropout=0.0,
                          seq_classif_dropout=0.0)
MODERNBERT = SIZES | dict(intermediate_size=44, max_position_embeddings=24, num_hidden_layers=5, local_attention=6,
                          global_rope_theta=900.0, local_rope_theta=50.0, cls_token_id=None, sep_token_id=None,
                          bos_token_id=None, eos_token_id=None)
FAMILIES = {"bert": ("Bert", BERT), "bert_relu": ("Bert", BERT | dict(hidden_act="relu", layer_norm_eps=1e-3)),
            "roberta": ("Roberta", ROBERTA), "xlm_roberta": ("XLMRoberta", ROBERTA), "camembert": ("Camembert", ROBERTA),
            "distilbert": ("DistilBert", DISTILBERT), "modernbert": ("ModernBert", MODERNBERT),
            "modernbert_mean": ("ModernBert", MODERNBERT | dict(classifier_pooling="mean", local_attention=9))}
ENDS = {"mlm": "ForMaskedLM", "classifier": "ForSequenceClassification", "tagger": "ForTokenClassification",
        "embedder": "Model"}
# Of tied parameters transformers names one, and files another.
IN_FILES = {"cls.predictions.decoder.bias": "cls.predictions.bias", "lm_head.decoder.bias": "lm_head.bias",
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"}
EVERY_HEAD = ["bert", "roberta", "distilbert", "modernbert"]
CASES = [f"{family}-{head}" for family in EVERY_HEAD for head in ENDS]
CASES += ["bert_relu-mlm", "xlm_roberta-mlm", "camembert-classifier", "modernbert_mean-classifier"]


def config_of(name):
    prefix, sizes = FAMILIES[name.split("-")[0]]
    return getattr(transformers, prefix + "Config")(**sizes)


def class_of(name):
    family, head = name.split("-")
    return getattr(transformers, FAMILIES[family][0] + ENDS[head])


def shake(model):
    """Changes every parameter from its initial value, so that an omitted one is detected."""
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor), alpha=0.1)


def results_of(name, model, tokens, lengths, types=None):
    """Logits, or of an embedder the mean of each text's vectors; 0 where there is padding."""
    present = torch.arange(tokens.shape[1]) < lengths[:, None]
    more = {} if types is None else {"token_type_ids": types}
    if name.endswith("embedder"):
        hidden = model(tokens, attention_mask=present.long(), **more).last_hidden_state
        return (hidden * present[..., None]).sum(1) / lengths[:, None]
    logits = model(tokens, attention_mask=present.long(), **more).logits
    return logits if name.endswith("classifier") else logits * present[..., None]


def expected(name, model):
    model.double().train()
    tokens = torch.randint(2, VOCABULARY, (len(LENGTHS), 20))
    present = torch.arange(20) < LENGTHS[:, None]
    tensors = {"tokens_without_padding": tokens.clone(), "lengths": LENGTHS}
    tokens = tokens.where(present, torch.tensor(model.config.pad_token_id))
    count = getattr(model.config, "type_vocab_size", 0)
    types = torch.randint(count, tokens.shape) if count > 1 else None
    with torch.no_grad():
        tensors["results_without_padding"] = results_of(name, model, tensors["tokens_without_padding"],
                                                        torch.full_like(LENGTHS, 20))
    results = results_of(name, model, tokens, LENGTHS, types)
    targets = torch.randint(results.shape[-1], results.shape[:-1])
    if name.endswith(("mlm", "tagger")):
        targets[~present] = -100
        targets[0, 3:6] = -100
    loss = F.cross_entropy(results.flatten(0, -2), targets.flatten(), reduction="sum")
    loss.backward()
    tensors |= {"tokens": tokens, "targets": targets, "results": results.detach(), "loss": loss.detach()}
    if types is not None:
        tensors["token_types"] = types
    for parameter, value in model.named_parameters():
        if value.grad is not None:  # a bare encoder's pooler has none
            tensors["gradient/" + IN_FILES.get(parameter, parameter)] = value.grad
    return {key: tensor.contiguous() for key, tensor in tensors.items()}


def make(name, folder):
    model = class_of(name)(config_of(name))
    shake(model)
    model.save_pretrained(folder)
    save_file(expected(name, model), folder / "expected.safetensors")


def load_strictly(name, folder):
    kind = class_of(name)
    assert transformers.AutoConfig.from_pretrained(folder).architectures == [kind.__name__]
    has_pooler = name in ("bert-embedder", "roberta-embedder")
    model, info = kind.from_pretrained(folder, output_loading_info=True,
                                       **({"add_pooling_layer": False} if has_pooler else {}))
    wrong = {what: keys for what, keys in info.items() if keys}
    assert not wrong, f"{name}: {wrong}"
    if name.endswith(("classifier", "tagger")):
        assert list(model.config.id2label.values()) == NAMES, model.config.id2label
    return model.eval()


def check(name, folder):
    ours = load_file(folder / "results.safetensors")
    with torch.no_grad():
        results = results_of(name, load_strictly(name, folder), ours["tokens"], ours["lengths"], ours.get("token_types"))
    error = ((results - ours["results"]).norm() / results.norm()).item()
    print(f"{name}: relative error of the results {error:.1e}")
    return error <= 1e-5


def main():
    action, root = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(12)
    if action == "check":
        sys.exit(not all([check(name, root / name / "ours") for name in CASES]))
    for name in CASES:
        (root / name).mkdir()
        make(name, root / name)


main()
