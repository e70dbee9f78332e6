"""A small job of every kind of model and task, and its data."""
import json
import struct
import zlib

WORDS = "red green blue old new small big far".split()

GPT = {"type": "gpt", "config": {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 32}}
ROTARY = {"type": "gpt", "config": {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 32, "position": "rotary",
                                    "norm": "rmsnorm", "activation": "swiglu"}}


def bert(head):
    return {"type": "bert", "config": {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 32, "head": head}}


def with_head(model, **config):
    return {**model, "config": {**model["config"], **config}}


# kind -> model, task, records of data.train, what it gives
KINDS = {
    "language model": (ROTARY, None, "texts", "the token that follows"),
    "language model, characters": (GPT, None, "characters", "the token that follows"),
    "language model, DPO": (ROTARY, "dpo", "pairs", "the token that follows"),
    "reward model": (with_head(ROTARY, head="classifier"), "reward", "pairs", "whether an answer is good"),
    "classifier of texts (gpt)": (with_head(ROTARY, head="classifier"), "text_classification", "classes", "a class"),
    "classifier of texts (bert)": (bert("classifier"), "text_classification", "classes", "a class"),
    "several classes of a text": (bert("classifier"), "multi_label_classification", "several", "sets of classes"),
    "number for a text": (bert("classifier"), "regression", "numbers", "numbers"),
    "tagger": (bert("tagger"), "tagging", "tags", "a class of each token"),
    "vectors of texts": (bert("embedder"), "retrieval", "alike", "a vector of each text"),
    "hidden tokens": (bert("mlm"), None, "plain", "tokens that a mask hides"),
    "classifier of images": ({"type": "resnet18"}, None, "images", "a class"),
    "classifier of pixels": ({"type": "unet", "config": {"channels": [8, 16]}}, None, "masks", "a class of each pixel"),
}


def byte_tokenizer():
    vocabulary, other = {}, 256
    for byte in range(256):
        shown = 32 < byte < 127 or (byte > 160 and byte != 173)
        vocabulary[chr(byte if shown else other)] = byte
        other += not shown
    special = [{"id": 256 + i, "content": text, "special": True, "normalized": False, "lstrip": False, "rstrip": False,
                "single_word": False} for i, text in enumerate(["<end>", "[PAD]"])]
    cut = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "added_tokens": special, "pre_tokenizer": cut, "decoder": cut,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}


def png(pixels, size, channels):
    """Pixels of one byte, or of three."""
    rows = b"".join(b"\0" + pixels[row * size * channels:(row + 1) * size * channels] for row in range(size))
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", size, size, 8, 0 if channels == 1 else 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def records(kind):
    for i in range(32):
        one, two = i % 8, i // 4 % 8
        text = f"{WORDS[one]} house {WORDS[two]}"
        size, colour = (one >= 4, one < 4)
        yield {
            "texts": {"text": text}, "plain": {"text": text},
            "pairs": {"prompt": text, "chosen": " good", "rejected": " bad"},
            "classes": {"text": text, "label": "size" if size else "colour"},
            "several": {"text": text, "label": ["colour"] * colour + ["size"] * (two >= 4)},
            "numbers": {"text": text, "label": one / 7},
            "tags": {"tokens": text.split(), "tags": ["B-X" if size else "O", "O", "O"]},
            "alike": {"anchor": text, "positive": "it is " + WORDS[one]},
        }[kind]


def write_data(folder):
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer/tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    for kind in ("texts", "plain", "pairs", "classes", "several", "numbers", "tags", "alike"):
        (folder / f"{kind}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records(kind)))
    (folder / "characters.txt").write_text("red house blue far old new small big green 0123456789 " * 20)
    for i in range(16):
        shade = bytes([i * 16]) * (16 * 16 * 3)
        for name, content in ((f"images/{'dark' if i < 8 else 'light'}/{i}.png", png(shade, 16, 3)),
                              (f"masks/images/{i}.png", png(shade, 16, 3)),
                              (f"masks/masks/{i}.png", png(bytes([i % 2] * 128 + [1] * 128), 16, 1))):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    (folder / "in.txt").write_text("red house old\nbig house far\n")
    (folder / "suite.jsonl").write_text(json.dumps({"task": "t", "context": "red", "choices": [" a", " b"], "answer": 0}) + "\n")


def job(folder, kind):
    model, task, source, _ = KINDS[kind]
    data = {"text": {"tokenizer": "published", "tokenizer_path": str(folder / "tokenizer"), "max_length": 24}}
    if source == "characters":
        data = {"train": {"format": "text", "path": str(folder / "characters.txt")}}
    elif source == "images":
        data = {"train": {"format": "imagefolder", "path": str(folder / "images")}, "image": {"size": 16}}
    elif source == "masks":
        masks = {"format": "segmentation", "path": str(folder / "masks"), "num_classes": 2}
        data = {"train": masks, "val": masks, "image": {"size": 16}}
    elif source == "plain":
        data = {"train": {"format": "jsonl", "path": str(folder / "plain.jsonl")}, "text": {"tokenizer": "words", "max_length": 24}}
    else:
        data["train"] = {"format": "jsonl", "path": str(folder / f"{source}.jsonl")}
    data.setdefault("val", {"split": "25%"})
    if source in ("tags", "alike"):  # words are what they are about
        data["text"] = {"tokenizer": "words", "max_length": 24}
    job = {"device": "cpu", "model": model, "data": data, "train": {"max_steps": 2, "global_batch_size": 4},
           "checkpoint": {"interval": 1}, "optimizer": {"type": "sgd", "lr": 0.01}}
    return {**job, "task": {"type": task}} if task else job
