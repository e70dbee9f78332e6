"""What encoders say outside of training, against the packages sentence-transformers and transformers: predict, embed,
export, and the loss of retrieval.

usage: texts_out_test.py GPUTRAIN
"""
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from warm_program import Program  # noqa: E402

PROGRAM = Program(sys.argv.pop(1))
try:
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import (AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoModelForTokenClassification,
                              AutoTokenizer, BertConfig, BertModel, BertTokenizerFast, LlamaConfig, LlamaForCausalLM)
except ImportError as missing:
    if os.environ.get("CI"):
        raise
    print(f"skipped: {missing}; scripts/requirements-test.txt lists what is needed")
    sys.exit(77)

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] red green blue house car ##s big old new small far it is and a ! ,".split()
TEXTS = ["red houses", "a big old car, it is far and new and small and blue!", "green", "", "unknown thing",
         "red car and blue car and green car and red house and blue house and green house", "far, far house"]
SIZES = dict(vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
             max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def shaken(model, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor), alpha=0.2)
    return model.eval()


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.holder.name)
        cls.bert = cls.folder / "bert"
        cls.bert.mkdir()
        (cls.bert / "vocab.txt").write_text("\n".join(WORDS) + "\n")
        BertTokenizerFast(str(cls.bert / "vocab.txt")).save_pretrained(cls.bert)
        shaken(BertModel(BertConfig(**SIZES)), 1).save_pretrained(cls.bert)
        cls.texts = cls.write("texts.txt", "\n".join(TEXTS) + "\n")

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    @classmethod
    def write(cls, name, text):
        (cls.folder / name).write_text(text)
        return cls.folder / name

    def gputrain(self, *words, expected=0):
        done = PROGRAM.run(*words)
        self.assertEqual(done.returncode, expected, done.stderr)
        return done.stdout if expected == 0 else done.stderr

    def embedded(self, folder, texts=None):
        self.gputrain("embed", folder, texts or self.texts, "--output", self.folder / "x.npy", "--batch-size", 3)
        vectors = np.load(self.folder / "x.npy")
        self.assertEqual(vectors.dtype, np.float32)
        return vectors

    def assert_near(self, ours, theirs):
        self.assertEqual(np.shape(ours), np.shape(theirs))
        self.assertLess(np.abs(np.asarray(ours) - np.asarray(theirs)).max(), 1e-5)

    def package_model(self, pooling, normalizes, longest=None):
        encoder = Transformer(str(self.bert))
        if longest:
            encoder.max_seq_length = longest
        return SentenceTransformer(modules=[encoder, Pooling(32, pooling)] + [Normalize()] * normalizes, device="cpu")

    def run_job(self, name, task, lines, more="", model="pretrained: BERT", tokenizer="pretrained", steps=1, lr=1e-12,
                batch=None, kind="bert"):
        head = {"tagging": "tagger", "retrieval": "embedder", "masked_language_model": "mlm"}.get(task, "classifier")
        data = self.write(name + ".jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        job = self.write(name + ".yaml", f"""
seed: 3
device: cpu
model: {{type: {kind}, {model.replace("BERT", str(self.bert))}, config: {{head: {head}{more}}}}}
task: {{type: {task}}}
data: {{train: {{path: {data}, format: jsonl}}, text: {{tokenizer: {tokenizer}}}}}
train: {{max_steps: {steps}, global_batch_size: {batch or len(lines)}}}
optimizer: {{type: adamw, lr: {lr}}}
log: {{interval: 1}}
""")
        self.gputrain("run", job, "--output-dir", self.folder / name)
        data.unlink()
        return self.folder / name

    def exported(self, run, form="hf", *more):
        out = self.folder / (run.name + "-" + form)
        self.gputrain("export", run, out, "--format", form, *more)
        return out


class Embeddings(Case):
    def test_of_folders_of_the_package(self):
        for pooling, normalizes, longest in (("mean", 0, None), ("cls", 1, 9), ("lasttoken", 0, 9), ("mean", 1, None)):
            with self.subTest(pooling=pooling, normalizes=normalizes):
                model = self.package_model(pooling, normalizes, longest)
                folder = self.folder / f"{pooling}{normalizes}"
                model.save(str(folder), create_model_card=False)
                expected = model.encode(TEXTS)
                self.assert_near(self.embedded(folder), expected)
                # As versions before 5.4 wrote it.
                key = {"mean": "mean_tokens", "cls": "cls_token", "lasttoken": "lasttoken"}[pooling]
                (folder / "1_Pooling/config.json").write_text(json.dumps(
                    {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": False, "pooling_mode_" + key: True}))
                (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
                self.assert_near(self.embedded(folder), expected)
        pooling = self.folder / "mean1/1_Pooling/config.json"
        pooling.write_text(json.dumps({"pooling_mode": "max"}))
        error = self.gputrain("embed", self.folder / "mean1", self.texts, "--output", "x.npy", expected=3)
        self.assertIn("pooling 'max' is not supported", error)

    def test_of_an_encoder_alone_are_means(self):
        self.assert_near(self.embedded(self.bert), self.package_model("mean", 0).encode(TEXTS))

    def test_of_a_run_are_those_of_its_export_and_loss_is_that_of_the_package(self):
        model = self.package_model("cls", 1, 12)
        model.save(str(self.folder / "base"), create_model_card=False)
        pairs = [(text, f"it is {text}") for text in ("red house", "green car", "big old car", "far", "a blue house!")]
        run = self.run_job("retrieval", "retrieval", [{"anchor": a, "positive": b} for a, b in pairs],
                           model=f"pretrained: {self.folder / 'base'}")
        ours = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])["train/loss"]
        with torch.no_grad():
            sides = [model.tokenize(list(side)) for side in zip(*pairs)]
            self.assertAlmostEqual(ours, MultipleNegativesRankingLoss(model)(sides, None).item(), delta=1e-5)
        expected = model.encode(TEXTS)
        self.assert_near(self.embedded(run), expected)
        again = SentenceTransformer(str(self.exported(run, "sentence-transformers")), device="cpu")
        self.assertEqual([type(module).__name__ for module in again], ["Transformer", "Pooling", "Normalize"])
        self.assertEqual(again.max_seq_length, 12)
        self.assert_near(again.encode(TEXTS), expected)
        self.assert_near(self.embedded(self.folder / "retrieval-sentence-transformers"), expected)

    def test_are_as_the_job_says_before_the_folder(self):
        self.package_model("cls", 1, 12).save(str(self.folder / "defaults"), create_model_card=False)
        job = self.write("defaults.yaml", f"model: {{type: bert, pretrained: {self.folder / 'defaults'}}}\n"
                                          "data: {train: {path: x.jsonl, format: jsonl}}\n")

        def settings(*values):
            lines = self.gputrain("config", job, *(word for value in values for word in ("--set", value))).splitlines()
            return [line.strip() for line in lines if line.strip().split(":")[0] in ("head", "pooling", "normalize", "max_length")]
        self.assertEqual(settings(), ["head: embedder", "pooling: first", "normalize: true", "max_length: 12"])
        self.assertEqual(settings("model.config.head=embedder", "model.config.pooling=mean", "data.text.max_length=7"),
                         ["head: embedder", "pooling: mean", "normalize: true", "max_length: 7"])
        self.assertEqual(settings("model.config.head=classifier"),
                         ["head: classifier", "pooling: null", "normalize: false", "max_length: auto"])

    def test_of_words_learned_from_nothing(self):
        lines = [{"anchor": text + " " + text, "positive": "!" + text} for text in TEXTS if text]
        run = self.run_job("words", "retrieval", lines, model="adapter: null", tokenizer="words", steps=3, lr=0.01,
                           more=", n_layer: 1, n_head: 2, n_embd: 32, pooling: last")
        self.write("words.jsonl", "".join(json.dumps(line) + "\n" for line in lines))  # the words are made from it
        texts = self.write("few.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in ("Red car!", "far é")))
        folder = self.exported(run, "sentence-transformers")
        again = SentenceTransformer(str(folder), device="cpu")
        self.assert_near(self.embedded(run, texts), again.encode(["Red car!", "far é"]))
        self.assert_near(self.embedded(run, texts), self.embedded(folder, texts))


class Predictions(Case):
    def logits(self, kind, folder, texts, pairs=None):
        model = kind.from_pretrained(folder).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        with torch.no_grad():
            inputs = tokenizer(texts, pairs, padding=True, truncation=True, max_length=40, return_tensors="pt")
            return model.config, model(**inputs).logits

    def predicted(self, run, file, *more):
        return [json.loads(line) for line in self.gputrain("predict", run, file, "--json", *more).splitlines()]

    def test_of_classes_are_those_of_the_export(self):
        lines = [{"text": text, "text_pair": "is it?", "label": f"label {len(text) % 3}"} for text in TEXTS]
        run = self.run_job("classes", "text_classification", lines)
        table = self.write("classes.csv", "text_pair,text\n" + "".join(f'"a car","{text}"\n' for text in TEXTS))
        ours, folder = self.predicted(run, table), self.exported(run)
        config, logits = self.logits(AutoModelForSequenceClassification, folder, TEXTS, ["a car"] * len(TEXTS))
        self.assertEqual(config.problem_type, "single_label_classification")
        names = [config.id2label[i] for i in range(3)]
        self.assertEqual(names, ["label 0", "label 1", "label 2"])
        self.assert_near([[each["probabilities"][name] for name in names] for each in ours], logits.softmax(-1))
        self.assertEqual([each["label"] for each in ours], [names[i] for i in logits.argmax(-1)])
        self.assertEqual(self.predicted(folder, table), ours)
        plain = self.gputrain("predict", run, table, "--output", self.folder / "out") or (self.folder / "out").read_text()
        self.assertEqual(plain.splitlines()[0].split("\t"), [ours[0]["label"], f"{ours[0]['probability']:.4f}"])
        self.assertIn("model.config.head=embedder", self.gputrain("embed", run, table, "--output", "x.npy", expected=2))

    def test_of_sets_of_classes_and_numbers_are_those_of_the_export(self):
        lines = [{"text": text, "label": ["a", "b", "c"][:len(text) % 3 + 1]} for text in TEXTS if text]
        run = self.run_job("sets", "multi_label_classification", lines)
        ours = self.predicted(run, self.texts)
        config, logits = self.logits(AutoModelForSequenceClassification, self.exported(run), TEXTS)
        self.assertEqual(config.problem_type, "multi_label_classification")
        self.assert_near([list(each["probabilities"].values()) for each in ours], logits.sigmoid())
        self.assertEqual([each["labels"] for each in ours], [["abc"[i] for i in range(3) if row[i] > 0] for row in logits])
        run = self.run_job("numbers", "regression", [{"text": text, "label": len(text)} for text in TEXTS if text])
        config, logits = self.logits(AutoModelForSequenceClassification, self.exported(run), TEXTS)
        self.assertEqual(config.problem_type, "regression")
        self.assert_near([each["number"] for each in self.predicted(run, self.texts)], logits[:, 0])

    def test_are_all_numbers_of_a_published_model_and_no_classes_that_the_data_does_not_have(self):
        lines = [{"text": text, "label": "ab"[len(text) % 2]} for text in TEXTS if text]
        run = self.run_job("spare", "text_classification", lines, more=", num_classes: 3")
        self.assertEqual([list(each["probabilities"]) for each in self.predicted(run, self.texts)], [["a", "b"]] * len(TEXTS))
        folder = self.exported(run)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"problem_type": "regression"}))
        _, logits = self.logits(AutoModelForSequenceClassification, folder, TEXTS)
        self.assert_near([each["numbers"] for each in self.predicted(folder, self.texts)], logits)

    def test_of_an_adapted_language_model_are_those_of_its_merged_export(self):
        llama = self.folder / "llama"
        BertTokenizerFast(str(self.bert / "vocab.txt")).save_pretrained(llama)
        sizes = {name: SIZES[name] for name in SIZES if not name.endswith("prob")}
        shaken(LlamaForCausalLM(LlamaConfig(**sizes, pad_token_id=0)), 1).save_pretrained(llama)
        lines = [{"text": text, "label": "ab"[len(text) % 2]} for text in TEXTS if text]
        run = self.run_job("adapted", "text_classification", lines, kind="gpt", steps=3, lr=0.1,
                           model=f"pretrained: {llama}, adapter: {{type: lora, rank: 4, modules_to_save: [score]}}")
        self.write("adapted.jsonl", "".join(json.dumps(line) + "\n" for line in lines))  # the classes are in it
        ours, folder = self.predicted(run, self.texts), self.exported(run, "hf", "--merge")
        config, logits = self.logits(AutoModelForSequenceClassification, folder, TEXTS)
        self.assertEqual(config.id2label, {0: "a", 1: "b"})
        self.assert_near([list(each["probabilities"].values()) for each in ours], logits.softmax(-1))
        self.assertGreater(np.ptp([each["probability"] for each in ours]), 0.01)
        copy = self.exported(folder)  # what is written can be written again
        self.assertEqual((copy / "config.json").read_text(), (folder / "config.json").read_text())
        again = self.predicted(folder, self.texts)  # merged weights give rounded values
        self.assert_near([each["probability"] for each in again], [each["probability"] for each in ours])
        self.assertIn("--merge", self.gputrain("export", run, folder, "--format", "hf", expected=2))
        self.assertIn("gputrain predict", self.gputrain("generate", folder, "--prompt", "red", expected=2))

    def test_leave_nothing_where_their_export_fails(self):
        lines = [{"text": text, "label": "ab"[len(text) % 2]} for text in TEXTS if text]
        run = self.run_job("bytes", "text_classification", lines, model="adapter: null", tokenizer="bytes",
                           more=", n_layer: 1, n_head: 2, n_embd: 32")
        self.write("bytes.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        error = self.gputrain("export", run, self.folder / "none", "--format", "hf", expected=2)
        self.assertIn("transformers has no tokenizer 'bytes'", error)
        self.assertFalse((self.folder / "none").exists())

    def test_of_tags_are_those_of_the_export(self):
        sentences = [text.split() for text in TEXTS if text]
        tags = ["O", "B-THING", "I-THING"]
        lines = [{"tokens": words, "tags": [tags[len(word) % 3] for word in words]} for words in sentences]
        run = self.run_job("tags", "tagging", lines, batch=4, steps=12)  # epochs end within a batch
        file = self.write("tags.conll", "\n\n".join("\n".join(words) for words in sentences) + "\n")
        folder = self.exported(run)
        model, tokenizer = AutoModelForTokenClassification.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
        plain = [part.splitlines() for part in self.gputrain("predict", run, file).split("\n\n") if part]
        for words, ours, shown in zip(sentences, self.predicted(run, file), plain, strict=True):
            inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
            ids = inputs.word_ids()
            with torch.no_grad():
                best = model(**inputs).logits[0].softmax(-1).max(-1)
            places = [ids.index(i) for i in range(len(words))]
            expected = [model.config.id2label[best.indices[place].item()] for place in places]
            self.assertEqual((ours["words"], ours["tags"]), (words, expected))
            self.assertEqual(shown, [f"{word}\t{tag}" for word, tag in zip(words, expected)])
            self.assert_near(ours["probabilities"], best.values[places])
            covered = {i for entity in ours["entities"] for i in range(entity["begin"], entity["end"])}
            self.assertEqual(covered, {i for i, tag in enumerate(expected) if tag != "O"})

    def test_are_refused_of_hidden_tokens_whose_export_guesses_them(self):
        run = self.run_job("hidden", "masked_language_model", [{"text": text} for text in TEXTS if text])
        self.assertIn("tokens that a mask hides", self.gputrain("predict", run, self.texts, expected=2))
        folder = self.exported(run)
        _, logits = self.logits(AutoModelForMaskedLM, folder, TEXTS)
        self.assertEqual(logits.shape[-1], len(WORDS))
        self.assert_near(self.embedded(folder), self.package_model("mean", 0).encode(TEXTS))


if __name__ == "__main__":
    unittest.main()
