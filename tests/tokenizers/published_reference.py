"""Makes tokenizers with the packages tokenizers, tiktoken and sentencepiece, and their tokens for many texts.

usage: published_reference.py FOLDER

Writes FOLDER/texts.json, and for each tokenizer FOLDER/NAME/ with its files and FOLDER/NAME.expected: the tokens of
each text without and with special tokens, and the text they are decoded to, or null.
"""
import base64
import itertools
import json
import pathlib
import random
import sys
import unicodedata

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

folder = pathlib.Path(sys.argv[1])
rng = random.Random(1)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"
            r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
WORDS = """the quick brown fox jumps over lazy dogs don't I'll we've HELLO World élève naïve
e\u0301te\u0301 Ångström größe
привет мир 你好 世界 日本語 テスト 한국어 हिन्दी ไทย 👩‍👩‍👧 🇩🇪 👍🏽 def foo(x): return x+1 #include <vector> std::cout << 42; } 12345
3.14159 1e-9 http://a.b/c?d=e&f=g ... !!! — “quote” ‘s 'S 'LL ﬁ ½ ² İstanbul ſ ſt K Σίσυφος""".split()
WORDS += ["\t", "\n\n", "\r\n", "    "]
CORPUS = [" ".join(rng.choices(WORDS, k=40)) for _ in range(200)]
ODD = " \t\n\r\u00a0\u3000\u180e\u200b\u200d\u2028\u0085aA1'.sS tTlLdD/你é\u0301½٣"
MARKS = ["<|start|>", "<|end|>", " <sp>", "<sp>  ", "ADD", "add", "ADDED", "<s>", "[MASK]", " [MASK] ", "▁",
         "<0x41>", "  ", "\n", "<|im_start|>", "<|im_end|>", "<|im_end|>\u0338", "<|extra_0|>", "<|extra_204|>",
         "<|extra_205|>"]
POINTS = [chr(c) for c in range(0x10000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def random_text() -> str:
    count = rng.randrange(1, 40)
    kind = rng.randrange(6)
    if kind == 0:
        return " ".join(rng.choices(WORDS, k=count))
    if kind == 1:  # bytes changed at random, what is broken replaced
        data = bytearray("".join(rng.choices(WORDS, k=count)).encode())
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return data.decode("utf-8", "replace")
    return "".join(rng.choices((WORDS, ODD, POINTS, MARKS + WORDS)[kind - 2], k=count))


TEXTS = ["", " ", "a", "\x10", "a" * 3000, "ab" * 500 + " " * 300 + "\n"] + [random_text() for _ in range(600)]
ADDED = [AddedToken("<|start|>", special=True), AddedToken("<|end|>", special=True),
         AddedToken("<sp>", lstrip=True, rstrip=True, special=True),
         AddedToken("ADD", single_word=True, normalized=True),
         AddedToken("ADDED", normalized=False), AddedToken("[MASK]", lstrip=True, special=True, normalized=False)]


def folder_of(name: str) -> pathlib.Path:
    (folder / name).mkdir()
    return folder / name


def expect(name: str, rows) -> None:
    """Rows: tokens without and with special tokens, text, and where there are some, tokens and types of the text with the
    one before, and the bytes that tokens stand for."""
    keys = ("tokens", "framed", "text", "pair", "types", "ranges")
    (folder / f"{name}.expected").write_text(json.dumps([dict(zip(keys, row)) for row in rows]))


def ranges_of(text: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Characters as bytes."""
    begins = list(itertools.accumulate((len(character.encode()) for character in text), initial=0))
    return [(begins[begin], begins[end]) for begin, end in offsets]


def expect_of(name: str, tokenizer: Tokenizer) -> None:
    plain = tokenizer.encode_batch(TEXTS, add_special_tokens=False)
    framed = tokenizer.encode_batch(TEXTS)
    pairs = tokenizer.encode_batch([(TEXTS[i - 1], text) for i, text in enumerate(TEXTS)])
    expect(name, [(one.ids, other.ids, tokenizer.decode(one.ids, skip_special_tokens=False), pair.ids, pair.type_ids,
                   ranges_of(text, one.offsets)) for text, one, other, pair in zip(TEXTS, plain, framed, pairs)])


def write(name: str, tokenizer: Tokenizer, merges_as_text: bool = False) -> None:
    tokenizer.add_tokens(ADDED)
    state = json.loads(tokenizer.to_str())
    if merges_as_text:
        state["model"]["merges"] = [" ".join(merge) for merge in state["model"]["merges"]]
    (folder_of(name) / "tokenizer.json").write_text(json.dumps(state))
    expect_of(name, tokenizer)


def trained(tokenizer: Tokenizer, trainer) -> dict:
    tokenizer.train_from_iterator(CORPUS, trainer)
    return json.loads(tokenizer.to_str())["model"]


def bpe_like(model: dict, **options) -> Tokenizer:
    merges = [tuple(merge) for merge in model["merges"]]
    return Tokenizer(models.BPE(vocab=model["vocab"], merges=merges, **options))


# --- byte-level BPE ---------------------------------------------------------------------------------------------------

base = Tokenizer(models.BPE())
base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
byte_level = trained(base, trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                               special_tokens=["<s>"], show_progress=False))


def write_byte_level(name, steps, normalizer=None, alphabet=True, post=None, **options) -> None:
    tokenizer = bpe_like(byte_level, **options)
    last = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)] if alphabet else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + last)
    if normalizer:
        tokenizer.normalizer = normalizer
    if post:
        tokenizer.post_processor = post
    tokenizer.decoder = decoders.ByteLevel()
    write(name, tokenizer)


def pattern(text: str, behavior: str = "isolated", **options):
    return pre_tokenizers.Split(Regex(text), behavior, **options)


BEGIN = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)])
write_byte_level("gpt2", [pre_tokenizers.ByteLevel(add_prefix_space=False)], alphabet=False,
                 post=processors.ByteLevel())
write_byte_level("roberta", [pre_tokenizers.ByteLevel()], alphabet=False,
                 post=processors.RobertaProcessing(("</s>", 2), ("<s>", 0)))
write_byte_level("llama3", [pattern(LLAMA3)], ignore_merges=True,
                 post=processors.Sequence([processors.ByteLevel(), BEGIN]))
write_byte_level("qwen2", [pattern(QWEN2)], normalizers.NFC())
write_byte_level("o200k", [pattern(O200K)])
write_byte_level("deepseek", [pattern(text) for text in DEEPSEEK], normalizers.Sequence([]))
for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
    write_byte_level(f"split_{behavior}", [pattern(r"\w+|\d", behavior)])
    write_byte_level(f"split_{behavior}_inverted", [pattern(r"\w+|\d", behavior, invert=True)])
    write_byte_level(f"punctuation_{behavior}", [pre_tokenizers.Punctuation(behavior)])
for name, step in {
    "whitespace": pre_tokenizers.Whitespace(), "whitespace_split": pre_tokenizers.WhitespaceSplit(),
    "digits": pre_tokenizers.Digits(False), "single_digits": pre_tokenizers.Digits(True),
    "bert": pre_tokenizers.BertPreTokenizer(),
    "metaspace_first": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "metaspace_never": pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
    "boundary": pattern(r"\b[a-z]+\b|\S\B"), "empty_matches": pattern(r"\s*|[^\S\n]x?|\p{N}{1,2}+"),
    "lines": pattern(r"^\w+|\.$"),
    "delimiter": pre_tokenizers.CharDelimiterSplit("e"),
    "text_after_alphabet": pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(), pre_tokenizers.Split("Ġ", "removed")]),
}.items():
    write_byte_level(name, [step])
for name, step in {
    "nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(), "nfkd": normalizers.NFKD(),
    "lowercase": normalizers.Lowercase(), "strip": normalizers.Strip(), "strip_left": normalizers.Strip(right=False),
    "accents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
    "alphabet": normalizers.ByteLevel(),
    "replace": normalizers.Replace(Regex(r"\s+"), "_"), "prepend": normalizers.Prepend("x "),
    "bert_accents": normalizers.BertNormalizer(strip_accents=False),
}.items():
    write_byte_level(f"normalizer_{name}", [pre_tokenizers.Split(" ", "merged_with_next")], step)

# --- BPE of characters ------------------------------------------------------------------------------------------------

base = Tokenizer(models.BPE(unk_token="<unk>"))
base.pre_tokenizer = pre_tokenizers.Metaspace()
characters = trained(base, trainers.BpeTrainer(
    vocab_size=1000, special_tokens=["<unk>", "<s>"] + BYTES, limit_alphabet=150, show_progress=False))
to_text = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
for name, normalizer, cuts, tail in (
        ("llama2", None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), [decoders.Strip(" ", 1, 0)]),
        ("llama2_old", normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None,
         [decoders.Strip(" ", 1, 0)]),
        ("gemma", normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"), [])):
    tokenizer = bpe_like(characters, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    if normalizer:
        tokenizer.normalizer = normalizer
    if cuts:
        tokenizer.pre_tokenizer = cuts
    tokenizer.decoder = decoders.Sequence(to_text + tail)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    write(name, tokenizer, merges_as_text=name == "gemma")
for name, fuses in (("unknown", False), ("unknown_fused", True)):
    tokenizer = bpe_like(characters, unk_token="<unk>", fuse_unk=fuses)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    write(name, tokenizer)
tokenizer = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer.decoder = decoders.BPEDecoder()
tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
    vocab_size=600, special_tokens=["<unk>"], end_of_word_suffix="</w>", continuing_subword_prefix="##",
    limit_alphabet=100, show_progress=False))
write("word_ends", tokenizer)

# --- WordPiece, WordLevel and Unigram ---------------------------------------------------------------------------------

for name, lowercase in (("bert_cased", False), ("bert_uncased", True)):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
        vocab_size=700, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    write(name, tokenizer)
tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
tokenizer.normalizer = normalizers.Lowercase()
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tokenizer.train_from_iterator(CORPUS, trainers.WordLevelTrainer(
    vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False))
tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
write("words", tokenizer)
tokenizer = Tokenizer(models.Unigram())
tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
unigram = trained(tokenizer, trainers.UnigramTrainer(
    vocab_size=600, special_tokens=["<unk>", "<s>"] + BYTES, unk_token="<unk>", show_progress=False))
for name, falls_back in (("unigram", False), ("unigram_bytes", True)):
    vocab = [tuple(entry) for entry in unigram["vocab"] if falls_back or not entry[0].startswith("<0x")]
    tokenizer = Tokenizer(models.Unigram(vocab, 0, falls_back))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    write(name, tokenizer)

# --- older formats ----------------------------------------------------------------------------------------------------

tokenizer = bpe_like(byte_level)
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(["<s>"])
tokenizer.model.save(str(folder_of("vocabulary_and_merges")))
expect_of("vocabulary_and_merges", tokenizer)

tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
tokenizer.normalizer = normalizers.BertNormalizer()
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tokenizer.decoder = decoders.WordPiece()
tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
    vocab_size=700, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
tokenizer.model.save(str(folder_of("bert_vocabulary")))
expect_of("bert_vocabulary", tokenizer)

visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
hidden = [byte for byte in range(256) if byte not in visible]
alphabet = {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(hidden)}
tokens = [bytes([byte]) for byte in range(256)]
tokens += [bytes(alphabet[c] for c in text) for text, _ in sorted(byte_level["vocab"].items(), key=lambda item: item[1])
           if text != "<s>" and len(text) > 1]
entries = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
           for rank, token in enumerate(tokens)]
(folder_of("tekken") / "tekken.json").write_text(json.dumps({
    "config": {"pattern": O200K, "default_num_special_tokens": 10, "default_vocab_size": 10 + len(tokens)},
    "vocab": entries, "special_tokens": [{"rank": 1, "token_str": "<ſ>", "is_control": True}]}))
ranks = {token: rank for rank, token in enumerate(tokens)}
encoding = tiktoken.Encoding("tekken", pat_str=O200K, mergeable_ranks=ranks, special_tokens={})
rows = [encoding.encode_ordinary(text) for text in TEXTS]
expect("tekken", [([10 + rank for rank in row],) * 2 + (encoding.decode(row),) for row in rows])

# Qwen's ranks, of which most are here of tokens that no text has; special tokens are looked for in normalised text.
tokens += [f"{rank:08}".encode() for rank in range(len(tokens), 151643)]
(folder_of("qwen") / "qwen.tiktoken").write_text(
    "".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)))
special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)]
encoding = tiktoken.Encoding("qwen", pat_str=QWEN2, mergeable_ranks={token: rank for rank, token in enumerate(tokens)},
                             special_tokens={text: 151643 + i for i, text in enumerate(special)})
rows = [encoding.encode(unicodedata.normalize("NFC", text), allowed_special="all") for text in TEXTS]
expect("qwen", [(row, row, encoding.decode(row)) for row in rows])

(folder / "corpus.txt").write_text("\n".join(CORPUS))
for kind in ("bpe", "unigram"):
    for falls_back, rules in ((True, "identity"), (False, "nmt_nfkc")):
        name = f"sentencepiece_{kind}_{rules}"
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "corpus.txt"), model_prefix=str(folder_of(name) / "tokenizer"), vocab_size=600,
            model_type=kind, byte_fallback=falls_back, character_coverage=0.98, normalization_rule_name=rules,
            user_defined_symbols=["<sp>"], remove_extra_whitespaces=not falls_back, hard_vocab_limit=False,
            minloglevel=2)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / name / "tokenizer.model"))
        rows = [processor.encode(text) for text in TEXTS]
        expect(name, [(row, row, None if processor.unk_id() in row else processor.decode(row)) for row in rows])

(folder / "texts.json").write_text(json.dumps(TEXTS))
