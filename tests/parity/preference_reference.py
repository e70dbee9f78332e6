"""TRL as reference for learning from preferences, on small random models of transformers.

preference_reference.py DIR writes DIR/base, a language model with its tokenizer, DIR/policy, the same with other
weights, DIR/adapter, a LoRA adapter for the base, DIR/scorer, a sequence classifier, and the files pairs.jsonl,
conversations.jsonl and ratings.jsonl. For each case, DIR/<case>.safetensors has the loss of all samples as one batch,
the mean rewards of chosen and of rejected answers, and the gradients, as TRL's trainers compute them.
"""
import json
import sys
import warnings
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig, LlamaForCausalLM,
                          LlamaForSequenceClassification, PreTrainedTokenizerFast, logging)

sys.modules["wandb"] = None  # only its protocol buffers are installed
warnings.filterwarnings("ignore")
logging.set_verbosity_error()

from datasets import Dataset, disable_progress_bars  # noqa: E402
from peft import LoraConfig  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer  # noqa: E402
from trl.experimental.cpo import CPOConfig, CPOTrainer  # noqa: E402
from trl.experimental.orpo import ORPOConfig, ORPOTrainer  # noqa: E402

disable_progress_bars()
WORDS = "one two three four five six seven eight nine ten red green blue small large cat dog bird".split()
SIZES = dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=48,
             max_position_embeddings=64, tie_word_embeddings=False, attention_dropout=0.0)
TEMPLATE = ("{% for m in messages %}{{ '<' + m['role'] + '> ' + m['content'] + ' </s>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}")


def make_tokenizer():
    special = ["<unk>", "<pad>", "</s>", "<user>", "<assistant>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [" ".join(WORDS + WORDS)] * 3, trainers.BpeTrainer(vocab_size=120, special_tokens=special, show_progress=False,
                                                   initial_alphabet=list(set("".join(WORDS))) + ["\u0120"]))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
                                   additional_special_tokens=["<user>", "<assistant>"])
    fast.chat_template = TEMPLATE
    return fast


def words(generator, least, most):
    count = int(torch.randint(least, most, (1,), generator=generator))
    return " ".join(WORDS[int(i)] for i in torch.randint(len(WORDS), (count,), generator=generator))


def make_records(answer_words):
    generator = torch.Generator().manual_seed(3)
    return [dict(prompt=words(generator, 2, 7), chosen=" " + words(generator, *answer_words),
                 rejected=" " + words(generator, *answer_words)) for _ in range(6)]


def as_conversation(record):
    return dict(prompt=[dict(role="user", content=record["prompt"])],
                chosen=[dict(role="assistant", content=record["chosen"].strip())],
                rejected=[dict(role="assistant", content=record["rejected"].strip())])


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def moved(model, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.03)
    return model


def run(case, root, trainer, rewards=("rewards/chosen", "rewards/rejected")):
    """The loss and the gradients of the training data as one batch."""
    model = trainer.model
    model.train()
    model.zero_grad()
    batch = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    loss = trainer.compute_loss(model, batch)
    loss.backward()
    found = {"loss": loss.detach().double().reshape(1)}
    metrics = getattr(trainer, "_stored_metrics", None) or trainer._metrics
    for name, key in zip(("chosen", "rejected"), rewards):
        if key in metrics["train"]:
            found[name] = torch.tensor([float(metrics["train"][key][0])], dtype=torch.double)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found["gradient/" + name.replace(".default", "")] = parameter.grad.contiguous()
    save_file(found, root / f"{case}.safetensors")


def main():
    root = Path(sys.argv[1])
    tokenizer = make_tokenizer()
    size = len(tokenizer)
    torch.manual_seed(1)
    config = LlamaConfig(**SIZES, vocab_size=size, pad_token_id=1, eos_token_id=2, bos_token_id=None)
    base = LlamaForCausalLM(config)
    scorer = LlamaForSequenceClassification(LlamaConfig(**config.to_dict() | dict(num_labels=1)))
    for name, model in [("base", moved(base, 2)), ("scorer", moved(scorer, 4))]:
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    moved(base, 5).save_pretrained(root / "policy")
    pairs = make_records((1, 9))
    even = make_records((4, 5))  # TRL's ORPO weighs long texts more; of one length, all weigh the same
    even = [record | dict(prompt="one two three") for record in even]
    conversations = [as_conversation(record) for record in pairs]
    ratings = [dict(prompt=record["prompt"], completion=record["chosen" if i % 2 else "rejected"], label=bool(i % 2))
               for i, record in enumerate(pairs)]
    for name, records in [("pairs", pairs), ("even", even), ("conversations", conversations), ("ratings", ratings)]:
        write_lines(root / f"{name}.jsonl", records)

    def load(name):
        return AutoModelForCausalLM.from_pretrained(root / name)

    common = dict(output_dir=str(root / "out"), per_device_train_batch_size=6, use_cpu=True, report_to=[],
                  gradient_checkpointing=False, bf16=False, max_length=64)
    data = {name: Dataset.from_list(records) for name, records in
            [("pairs", pairs), ("even", even), ("conversations", conversations), ("ratings", ratings)]}
    dpo = [("dpo", "pairs", dict(loss_type="sigmoid", beta=0.3)), ("hinge", "pairs", dict(loss_type="hinge", beta=0.3)),
           ("ipo", "pairs", dict(loss_type="ipo", beta=0.3)),
           ("conversations", "conversations", dict(loss_type="sigmoid", beta=0.3))]
    for case, name, options in dpo:
        run(case, root, DPOTrainer(load("policy"), load("base"), DPOConfig(**common, **options),
                                   train_dataset=data[name], processing_class=tokenizer))
    adapted = DPOTrainer(load("base"), None, DPOConfig(**common, beta=0.3), train_dataset=data["pairs"],
                         processing_class=tokenizer, peft_config=LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM",
                                                                            target_modules="all-linear"))
    with torch.no_grad():
        for name, parameter in adapted.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    adapted.model.save_pretrained(root / "adapter")
    run("adapted", root, adapted)
    run("orpo", root, ORPOTrainer(load("policy"), ORPOConfig(**common, beta=0.2), train_dataset=data["even"],
                                  processing_class=tokenizer))
    run("simpo", root, CPOTrainer(load("policy"), CPOConfig(**common, loss_type="simpo", cpo_alpha=0.0, beta=2.0,
                                                            simpo_gamma=1.0), train_dataset=data["pairs"],
                                  processing_class=tokenizer))
    run("kto", root, KTOTrainer(load("policy"), load("base"),
                                KTOConfig(**common, beta=0.3, desirable_weight=1.5, train_sampling_strategy="sequential"),
                                train_dataset=data["ratings"], processing_class=tokenizer))
    run("reward", root, RewardTrainer(AutoModelForSequenceClassification.from_pretrained(root / "scorer"),
                                      RewardConfig(**common, center_rewards_coefficient=0.05),
                                      train_dataset=data["pairs"], processing_class=tokenizer))


main()
