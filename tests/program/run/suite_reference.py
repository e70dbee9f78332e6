"""What lm-evaluation-harness would give for small random models, from transformers alone.

usage: suite_reference.py DIR

For each model a folder DIR/<name> as transformers writes it, suite.jsonl, and expected.json: for each line its
log-likelihoods or its text, and for each task and all of them the metrics. Requests are made by the rules of
lm-evaluation-harness 0.4 (multiple_choice, loglikelihood_rolling, generate_until with HFLM), and scored one at a time.
"""
import json
import math
import random
import re
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LENGTH, VOCABULARY = 40, 320
LEAST_GAP = 1e-3  # between the best and the next: rounding must not decide
WORDS = ("the cat sat on a mat while it was raining and nobody knew why Paris London Rome answer question of is "
         "caf\u00e9 \u00fcber na\u00efve \u65e5\u672c 12 345 yes no perhaps").split()


def text(random_words, count):
    return " ".join(random_words.choice(WORDS) for _ in range(count))


def tokenizer(begins):
    """Byte-level BPE; `begins`: texts get <s> in front."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    words = random.Random(1)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<s>", "<end>"], show_progress=False)
    made.train_from_iterator([text(words, 30) for _ in range(50)], trainer)
    if begins:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
        return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="<end>")
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")


SIZES = dict(vocab_size=VOCABULARY, initializer_range=0.3, bos_token_id=0, eos_token_id=1, pad_token_id=1)
MODELS = {
    "llama": (True, lambda: LlamaForCausalLM(LlamaConfig(
        **SIZES, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
        intermediate_size=48, max_position_embeddings=LENGTH))),
    "gpt2": (False, lambda: GPT2LMHeadModel(GPT2Config(**SIZES, n_layer=2, n_head=2, n_embd=32, n_positions=LENGTH))),
}


class Harness:
    """The rules: texts to tokens, and their scores."""

    def __init__(self, model, tokens):
        self.model, self.tokens = model, tokens
        self.first = tokens.eos_token_id if tokens.bos_token_id is None else tokens.bos_token_id

    def encode(self, string, special=True):
        special = special and not string.startswith(self.tokens.decode([self.first]))
        return self.tokens.encode(string, add_special_tokens=special)

    def score(self, before, scored):
        ids = (before + scored)[-(LENGTH + 1):]
        logs = self.model(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
        return logs[-len(scored):].gather(1, torch.tensor(scored)[:, None]).double().sum().item()

    def choice(self, context, continuation):
        if not context:
            scored = self.encode(continuation, special=False)
            return self.score([self.first], scored)
        head = context.rstrip()
        before = self.encode(head)
        return self.score(before, self.encode(context + continuation)[len(before):])

    def rolling(self, string):
        ids, total = self.encode(string), 0.0
        whole = [self.first] + ids
        for begin in range(0, len(ids), LENGTH):
            end = min(begin + LENGTH, len(ids))
            window = whole[max(0, end - LENGTH):end + 1]
            total += self.score(window[:begin - end], window[begin - end:])
        return total

    def written(self, prompt, stop, count):
        ids, new = self.encode(prompt)[-(LENGTH - count):], []
        for _ in range(count):
            best = self.model(torch.tensor([ids + new])).logits[0, -1].topk(2)
            assert best.values[0] - best.values[1] > LEAST_GAP
            new.append(best.indices[0].item())
            if new[-1] == self.tokens.eos_token_id:
                break
        string = self.tokens.decode(new, skip_special_tokens=True)
        for each in stop:
            string = string.split(each)[0]
        return string


def is_best(scores, answer):
    order = sorted(scores, reverse=True)
    assert order[0] - order[1] > LEAST_GAP
    return float(scores.index(order[0]) == answer)


def suite(harness):
    """Lines, and what is expected of each."""
    words = random.Random(2)
    lines, expected = [], []

    def add(line, **result):
        lines.append(line)
        expected.append(result)

    for number in range(16):
        context = ["Q: " + text(words, 3) + "\nA:", text(words, 4) + "  ", text(words, 60), "<s>" + text(words, 2), "",
                   text(words, 5) + " \u3000"][number // 2 % 6]
        choices = [text(words, words.randrange(1, 4)) for _ in range(2 + number % 3)]
        delimiter = " " if number % 2 else ""
        lls = [harness.choice(context, delimiter + choice) for choice in choices]
        answer = words.randrange(len(choices))
        add(dict(context=context, choices=choices, answer=answer, task="glued", delimiter="") if number % 2 == 0 else
            dict(context=context, choices=choices, answer=answer, task="choices"),
            loglikelihoods=lls, acc=is_best(lls, answer),
            acc_norm=is_best([ll / len(choice) for ll, choice in zip(lls, choices)], answer),
            acc_bytes=is_best([ll / len(choice.encode()) for ll, choice in zip(lls, choices)], answer))
    for count in (1, 9, 70, 33):
        string = "\n".join(text(words, 7) for _ in range(count // 7)) + text(words, count % 7) + " " * (count % 2)
        add(dict(text=string, task="texts"), loglikelihood=harness.rolling(string), bytes=len(string.encode()),
            words=len(re.split(r"\s+", string)))
    for number in range(8):
        prompt, count = text(words, words.randrange(1, 40)), 12
        stop = ["\n\n"] if number % 2 else ["e", " the"]
        found = harness.written(prompt, stop, count)
        line = dict(prompt=prompt, answer=found if number % 3 else found + "x", max_new_tokens=count)
        add(dict(line, task="questions") if number % 2 else dict(line, stop=stop, task="stopped"),
            written=found, exact_match=float(number % 3 > 0))
    order = list(range(len(lines)))
    words.shuffle(order)
    return [lines[i] for i in order], [expected[i] for i in order]


def metrics(results):
    found = {}
    for name in ("acc", "acc_norm", "acc_bytes", "exact_match"):
        values = [result[name] for result in results if name in result]
        if values:
            mean, count = sum(values) / len(values), len(values)
            spread = math.sqrt(sum((value - mean)**2 for value in values) / (count - 1))
            found[name] = {"value": mean, "stderr": spread / math.sqrt(count), "count": count}
    texts = [result for result in results if "loglikelihood" in result]
    if texts:
        loss = -sum(each["loglikelihood"] for each in texts)
        by_byte, by_word = loss / sum(each["bytes"] for each in texts), loss / sum(each["words"] for each in texts)
        for name, value in (("bits_per_byte", by_byte / math.log(2)), ("byte_perplexity", math.exp(by_byte)),
                            ("word_perplexity", math.exp(by_word))):
            found[name] = {"value": value, "count": len(texts)}
    return found


def main():
    torch.set_num_threads(1)
    for name, (begins, build) in MODELS.items():
        torch.manual_seed(3)
        model, tokens, folder = build().eval(), tokenizer(begins), Path(sys.argv[1]) / name
        model.save_pretrained(folder)
        tokens.save_pretrained(folder)
        with torch.inference_mode():
            lines, results = suite(Harness(model, tokens))
        (folder / "suite.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        tasks = sorted({line["task"] for line in lines})
        by_task = {task: metrics([r for line, r in zip(lines, results) if line["task"] == task]) for task in tasks}
        (folder / "expected.json").write_text(json.dumps({"lines": results, "tasks": by_task, "all": metrics(results)}))


if __name__ == "__main__":
    main()
