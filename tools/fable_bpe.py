"""Byte-level BPE for the fable model: learns a vocabulary, encodes text, writes tokenizer.json.

Plain Python, no packages. The split pattern below is the ASCII reading of LLAMA3_PATTERN (Python's
re has no \\p{L}), so learn() and encode() want ASCII text; tokenizer.json itself carries the full
Unicode pattern and all 256 bytes, and any reader of it takes any text.

Ids: 0..255 the bytes in GPT-2 order, then one id per merge in the order learned, then SPECIALS.
"""

import collections
import json
import re

VOCAB_SIZE = 4096
SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|system|>", "<|user|>", "<|assistant|>",
            "<|end|>"]
N_BASE = VOCAB_SIZE - len(SPECIALS)
BOS, EOS, SYSTEM, USER, ASSISTANT, END = range(N_BASE, VOCAB_SIZE)

LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                  r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ASCII_PATTERN = re.compile(LLAMA3_PATTERN.replace(r"[^\r\n\p{L}\p{N}]", r"[^\r\nA-Za-z0-9]")
                           .replace(r"[^\s\p{L}\p{N}]", r"[^\sA-Za-z0-9]")
                           .replace(r"\p{L}", "[A-Za-z]").replace(r"\p{N}", "[0-9]"))


def byte_alphabet():
    """The GPT-2 map from byte to printable character: (byte, character) in id order."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return [(b, chr(b)) for b in shown] + [(b, chr(256 + i)) for i, b in enumerate(hidden)]


BYTE_CHAR = dict(byte_alphabet())
BYTE_ID = {b: i for i, (b, _) in enumerate(byte_alphabet())}


def learn(texts, n_merges):
    """The n_merges most frequent merges of the texts, greedily: a list of (left id, right id).

    Works on the distinct words with their counts, and after each merge recounts only the words
    that hold the merged pair. Ties go to the lower pair, so the result depends on the text alone.
    """
    counts = collections.Counter()
    for text in texts:
        counts.update(ASCII_PATTERN.findall(text))
    words = [[BYTE_ID[b] for b in word.encode()] for word in counts]
    weights = list(counts.values())
    pair_count = collections.Counter()
    pair_words = collections.defaultdict(set)
    for w, ids in enumerate(words):
        for pair in zip(ids, ids[1:]):
            pair_count[pair] += weights[w]
            pair_words[pair].add(w)
    merges = []
    while len(merges) < n_merges:
        best = min(pair_count, key=lambda p: (-pair_count[p], p))
        new = 256 + len(merges)
        merges.append(best)
        for w in pair_words.pop(best):
            ids = words[w]
            for pair in zip(ids, ids[1:]):
                pair_count[pair] -= weights[w]
                if pair_count[pair] <= 0:
                    del pair_count[pair]
            words[w] = ids = merge_pair(ids, best, new)
            for pair in zip(ids, ids[1:]):
                pair_count[pair] += weights[w]
                pair_words[pair].add(w)
    return merges


def merge_pair(ids, pair, new):
    """ids with every occurrence of pair, from left to right, replaced by new."""
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and ids[i] == pair[0] and ids[i + 1] == pair[1]:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


class Bpe:
    """Text to ids and back. encode() reads special tokens in the text as plain text."""

    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.bytes_of = [bytes([b]) for b, _ in byte_alphabet()]
        for left, right in self.merges:
            self.bytes_of.append(self.bytes_of[left] + self.bytes_of[right])
        self.bytes_of += [s.encode() for s in SPECIALS]
        self.known = {}

    def encode(self, text):
        out = []
        for word in ASCII_PATTERN.findall(text):
            ids = self.known.get(word)
            if ids is None:
                ids = self.known[word] = self.encode_word(word)
            out += ids
        return out

    def encode_word(self, word):
        ids = [BYTE_ID[b] for b in word.encode()]
        while len(ids) > 1:
            best = min(zip(ids, ids[1:]), key=lambda p: self.rank.get(p, len(self.rank)))
            if best not in self.rank:
                break
            ids = merge_pair(ids, best, 256 + self.rank[best])
        return ids

    def decode(self, ids):
        return b"".join(self.bytes_of[i] for i in ids).decode("utf-8", "replace")


def tokenizer_json(merges):
    """The tokenizer in the format of the HuggingFace tokenizers library, as a dict."""
    shown = [c for _, c in byte_alphabet()]
    pairs = []
    for left, right in merges:
        pairs.append(shown[left] + " " + shown[right])
        shown.append(shown[left] + shown[right])
    bos = {"SpecialToken": {"id": SPECIALS[0], "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": N_BASE + i, "content": s, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, s in enumerate(SPECIALS)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": LLAMA3_PATTERN}, "behavior": "Isolated",
             "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": SPECIALS[0], "type_id": 1}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {SPECIALS[0]: {"id": SPECIALS[0], "ids": [BOS],
                                             "tokens": [SPECIALS[0]]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {s: i for i, s in enumerate(shown)}, "merges": pairs},
    }


def load(path):
    """The Bpe of a tokenizer.json that tokenizer_json() made."""
    with open(path, encoding="utf-8") as f:
        model = json.load(f)["model"]
    return Bpe([tuple(model["vocab"][s] for s in m.split(" ")) for m in model["merges"]])
