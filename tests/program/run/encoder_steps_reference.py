"""transformers as reference for twenty steps of encoders that a job trains.

make DIR:  for each case a folder DIR/<name> with a small random model and its tokenizer as transformers writes them,
           and texts to train on: data.csv with pairs of texts and their labels, or data.jsonl.
check DIR: takes the same steps from the same weights, and compares their losses with those in DIR/<name>/run. Where
           texts are classified, DIR/<name>/steps.json has the rows of data.csv in each step, which transformers'
           tokenizer encodes. Where masks hide tokens, it has the tokens and targets that gputrain drew; they must be
           those of the texts.
"""
import csv
import json
import random
import re
import sys
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

STEPS, LONGEST, LR, WEIGHT_DECAY, MAX_NORM = 20, 24, 1e-3, 0.1, 1.0
LABELS = ["no, not this", "so \"so\"", "yes"]
WORDS = "the a red green old small house tree river stands flows grows beside behind slowly never always".split()
BERT = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=3, type_vocab_size=2,
            max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
MODERNBERT = dict(hidden_size=48, intermediate_size=56, num_hidden_layers=4, num_attention_heads=3,
                  max_position_embeddings=40, local_attention=8, cls_token_id=1, sep_token_id=2,
                  bos_token_id=None, eos_token_id=None)
CASES = {"bert_classifies": ("Bert", "ForSequenceClassification", BERT),
         "modernbert_classifies": ("ModernBert", "ForSequenceClassification", MODERNBERT),
         "bert_guesses": ("Bert", "ForMaskedLM", BERT)}


def sentence():
    endings = ["", "", "s", "ly", ",", "\n"]
    return " ".join(random.choice(WORDS) + random.choice(endings) for _ in range(random.randint(1, 14)))


def tokenizer_of(texts):
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    made.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=90, special_tokens=special, show_progress=False))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]",
        mask_token="[MASK]")


def make(name, folder):
    family, end, sizes = CASES[name]
    pairs = [(sentence(), sentence()) for _ in range(52)]
    rows = [(a, b, LABELS[WORDS.index(re.match("|".join(WORDS), a)[0]) % 3]) for a, b in pairs]  # by the first word
    texts = tokenizer_of([text for row in rows for text in row[:2]])
    texts.save_pretrained(folder / "base")
    more = dict(num_labels=len(LABELS)) if end == "ForSequenceClassification" else {}
    config = getattr(transformers, family + "Config")(**sizes, **more, vocab_size=len(texts), pad_token_id=0)
    getattr(transformers, family + end)(config).save_pretrained(folder / "base")
    if end == "ForMaskedLM":
        (folder / "data.jsonl").write_text("".join(json.dumps({"text": a + " " + b}) + "\n" for a, b, _ in rows))
        return
    with open(folder / "data.csv", "w", newline="") as file:
        csv.writer(file).writerows([("text", "text_pair", "label"), *rows])


def labelled_batches(folder, texts, steps, family):
    with open(folder / "data.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    classes = sorted({row["label"] for row in rows})
    for numbers in steps:
        chosen = [rows[number] for number in numbers]
        batch = texts([row["text"] for row in chosen], [row["text_pair"] for row in chosen], truncation="longest_first",
                      max_length=LONGEST, padding=True, return_token_type_ids=family == "Bert", return_tensors="pt")
        yield batch, torch.tensor([classes.index(row["label"]) for row in chosen])


def masked_batches(folder, texts, steps, _):
    known = set()
    for line in (folder / "data.jsonl").read_text().splitlines():
        tokens, room = texts(json.loads(line)["text"], add_special_tokens=False).input_ids, LONGEST - 2
        known |= {(texts.cls_token_id, *tokens[i:i + room], texts.sep_token_id) for i in range(0, len(tokens), room)}
    chosen = masked = 0
    for samples in steps:
        longest = max(len(sample["tokens"]) for sample in samples)
        rows = {"input_ids": [], "attention_mask": [], "labels": []}
        for sample in samples:
            tokens, targets, missing = sample["tokens"], sample["targets"], longest - len(sample["tokens"])
            whole = tuple(token if target == -100 else target for token, target in zip(tokens, targets))
            assert whole in known, f"no text has the tokens {whole}"
            assert targets[0] == targets[-1] == -100, "special tokens are never guessed"
            chosen += sum(target != -100 for target in targets)
            masked += sum(target != -100 and token == texts.mask_token_id for token, target in zip(tokens, targets))
            rows["input_ids"].append(tokens + [0] * missing)
            rows["attention_mask"].append([1] * len(tokens) + [0] * missing)
            rows["labels"].append(targets + [-100] * missing)
        batch = {key: torch.tensor(value) for key, value in rows.items()}
        yield batch, batch.pop("labels")
    assert 0.7 < masked / chosen < 0.9, f"{masked} of {chosen} chosen tokens became the mask"


def optimizer_of(model):
    """AdamW with the groups of transformers' Trainer: biases and norms have no weight decay."""
    decays = {True: [], False: []}
    for name, parameter in model.named_parameters():
        decays[not (name.endswith("bias") or "norm" in name.lower())].append(parameter)
    return torch.optim.AdamW([{"params": decays[True], "weight_decay": WEIGHT_DECAY},
                              {"params": decays[False], "weight_decay": 0.0}], lr=LR)


def check(name, folder):
    family, end, _ = CASES[name]
    texts = transformers.AutoTokenizer.from_pretrained(folder / "base")
    model = getattr(transformers, family + end).from_pretrained(folder / "base").train()
    # A token drawn at random may be [PAD], whose embedding transformers otherwise does not train.
    model.get_input_embeddings().padding_idx = None
    rule = optimizer_of(model)
    steps = json.loads((folder / "steps.json").read_text())
    records = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    ours = [record["train/loss"] for record in records if record["kind"] == "train"]
    assert len(ours) == len(steps) == STEPS, f"{name}: {len(ours)} losses, {len(steps)} steps"
    batches = (masked_batches if end == "ForMaskedLM" else labelled_batches)(folder, texts, steps, family)
    theirs = []
    for batch, targets in batches:
        loss = model(**batch, labels=targets).loss
        rule.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        rule.step()
        theirs.append(loss.item())
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
    print(f"{name}: loss {theirs[0]:.6f} to {theirs[-1]:.6f}, largest relative difference of {STEPS} steps {worst:.1e}")
    return worst <= 1e-5


def main():
    action, root = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(17)
    torch.set_num_threads(1)
    random.seed(17)
    if action == "check":
        sys.exit(not all([check(name, root / name) for name in CASES]))
    for name in CASES:
        (root / name).mkdir()
        make(name, root / name)


main()
