#!/usr/bin/python3
"""Writes the questions of cases.json.gz: small tokenizers, one for each construct of tokenizer.json
that the two real vocabularies do not use, and texts for each. answer_cases.js puts in the answers of
the HuggingFace tokenizers library. Usage: make_cases.py > questions.json"""
import collections, json, random

random.seed(7)

# ---- two small vocabularies, learned from the texts below

SAMPLE = """The little fox ran over the hill, and the dog said that he wouldn't follow; they'll see
what we've done. In 1984 there were 12345 of them, at 3.14 each. She's here; I'm not; you're
late. for (int i = 0; i < n; i++) { printf("%d\\n", i); } ünïcödé Äpfel straße 你好，世界 日本語 Привет
""" * 3


def byte_char(b):
    if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255:
        return chr(b)
    return chr(256 + [x for x in range(256) if not (33 <= x <= 126 or 161 <= x <= 172 or 174 <= x)].index(b))


def learn(words, vocab, n_merges):
    merges = []
    counts = collections.Counter(words)
    split = {w: list(w) for w in counts}
    for _ in range(n_merges):
        pairs = collections.Counter()
        for w, c in counts.items():
            for a, b in zip(split[w], split[w][1:]):
                pairs[a, b] += c
        if not pairs:
            break
        a, b = max(pairs, key=lambda p: (pairs[p], p))
        merges.append([a, b])
        vocab.setdefault(a + b, len(vocab))
        for w, s in split.items():
            i = 0
            while i + 1 < len(s):
                if s[i] == a and s[i + 1] == b:
                    s[i:i + 2] = [a + b]
                i += 1
    return merges


def base_bytes():
    vocab = {byte_char(b): i for i, b in enumerate(range(256))}
    words = []
    for w in SAMPLE.replace(" ", "\0 ").split("\0"):
        words.append("".join(byte_char(b) for b in w.encode()))
    merges = learn(words, vocab, 150)
    return tokenizer(vocab, [" ".join(m) for m in merges], byte_fallback=False, decoder={"type": "ByteLevel", **BL},
                     pre_tokenizer={"type": "ByteLevel", **BL})


def base_chars():
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for b in range(256):
        vocab["<0x%02X>" % b] = len(vocab)
    chars = sorted(set(SAMPLE.replace(" ", "▁").replace("\n", "")) - set("ï語П"))
    for c in chars + ["_", "-", "A", "B", "a", "b"]:
        vocab.setdefault(c, len(vocab))
    words = [w for w in SAMPLE.replace(" ", "\0▁").replace("\n", "").replace("ï", "").replace("語", "").replace("П", "").split("\0")]
    merges = learn(words, vocab, 150)
    for s in ("▁▁", "▁▁▁▁"):
        vocab[s] = len(vocab)
    merges += [["▁", "▁"], ["▁▁", "▁▁"]]
    return tokenizer(vocab, merges, byte_fallback=True, unk="<unk>",
                     decoder={"type": "Sequence", "decoders": [
                         {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                         {"type": "ByteFallback"}, {"type": "Fuse"},
                         {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
                     normalizer={"type": "Sequence", "normalizers": [
                         {"type": "Prepend", "prepend": "▁"},
                         {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
                     added=[added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")])


def added(i, content, special=True, normalized=None, lstrip=False, rstrip=False, single_word=False):
    return {"id": i, "content": content, "single_word": single_word, "lstrip": lstrip, "rstrip": rstrip,
            "normalized": (not special) if normalized is None else normalized, "special": special}


def tokenizer(vocab, merges, byte_fallback, decoder, unk=None, normalizer=None, pre_tokenizer=None, added=()):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added),
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": decoder,
            "model": {"type": "BPE", "dropout": None, "unk_token": unk, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": byte_fallback,
                      "ignore_merges": False, "vocab": vocab, "merges": merges}}


BL = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BL_BARE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}

# ---- texts

PARTS = ["Hello", " the", "little fox", "  ", "   ", " ", "\n", "\n\n", "\r\n", "\t", "don't", "SHE'LL", "'s", "'S", "I'M",
         "12345", "1", "22", "3.14", "½", "٣٤", "Ⅷ", "²", "$5+3=8", "!!!", "...", "«q»", "“q”", "a_b", "_", "-", "--",
         "ünïcödé", "é", "Äpfel", "İstanbul", "ſ", "ǅ", "ß", "你好，世界", "日本語", "カタカナ", "한국어",
         "नमस्ते", "مرحبا", "Привет", "🙂", "👩‍👩‍👧", "🇩🇪", "\u00a0", "\u3000", "\u180e", "\u2009", "\u0085", "\u200b",
         "\u2028", "ﬁ", "Å", "①", "Ⓐ", "𝒳", "가", "ab", "abab", "a", "b", "A", "B", "aab", "▁", "▁▁x", "x y", "http://x.y/z?a=b",
         "<s>", "</s>", "<unk>", " <mask> ", "<mask>", "[X]", " [X]", "[X] ", "[X][X]", "word", "wordword", "sword",
         "<a>", "<a>b", "<ab>", "    foo", "\x00", "\x7f", "e\u0301\u0323", "\u0323\u0301", "q\u0307\u0323x"]

TEXTS = ["", " ", "  ", "a", " a", "a ", "\n", "Hello world", " Hello  world ", "the little fox",
         "She's here, they'LL see; WE'VE done I'm 12345 67.", "line one\nline two\n\n  indented\n", "x\u180ey \u180e z",
         "abababab", "aaaa bbbb", " leading", "trailing   ", "\u00a0nbsp", "é e\u0301", "１２３", "1234567890 12 123 1234",
         "word sword word's word_ wordé word", "<mask>  <mask>x <mask>", "a<mask>b", "  [X]  [X]  ", "你好 世界",
         "foo(bar){baz}; // qux", "a\u0301\u0323b", "\u1100\u1161\u11a8", "ÀÉÎ ŸØÆ", "ΣΑΣ ΟΔΟΣ", "the▁fox ▁ x"]


def texts(n):
    out = list(TEXTS)
    for _ in range(n):
        out.append("".join(random.choice(PARTS) for _ in range(random.randint(1, 9))))
    return [{"text": t} for t in out]


# ---- cases

cases = []


def case(name, base, n_texts=14, **members):
    """members replace those of the base; model=... replaces members of the model."""
    cases.append({"name": name, "base": base, "set": members, "texts": texts(n_texts), "id_lists": []})


def seq(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# byte level
for prefix in (False, True):
    for regex in (False, True):
        case(f"byte_level prefix={prefix} regex={regex}", "bytes",
             pre_tokenizer={"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex})
for name, p in (("gpt2", GPT2), ("llama3", LLAMA3), ("o200k", O200K), ("cl100k", CL100K), ("deepseek", DEEPSEEK)):
    case(f"pattern {name}", "bytes", 60,
         pre_tokenizer=seq("pretokenizers", split({"Regex": p}, "Isolated"), BL_BARE))
case("pattern llama3, inverted and removed", "bytes", 40,
     pre_tokenizer=seq("pretokenizers", split({"Regex": LLAMA3}, "Removed", True), BL_BARE))
for p in (r"\w+", r"\W+", r"\bx?", r"\h+", r"\s", r"\S+", r"[\s\d]+", r"[^\w]+", r"\p{Han}+", r"\p{^L}+", r"\P{L}+",
          r"[[:alpha:]]+", r"[[:punct:]]", r"[[:^space:]]+", r"(?m:a.b)", r"a.b", r"^.+$", r".$", r"\A.", r".\z", r"\p{N}{1,3}+",
          r"a{,2}b", r"x{", r"\u3000", r"\x{180e}", r"(?<=a)b", r"(?i)É", r"(?i:ß)", r"x*", r"(?=a)", r"\p{Greek}+|\p{Hiragana}+",
          r"\v|\t", r"(?:ab)+", r"[a-c&-]+", r"\p{Lu}\p{Ll}*", r"\n+", r"[一-龥぀-ゟ゠-ヿ]+"):
    case(f"regex {p}", "bytes", 24, pre_tokenizer=seq("pretokenizers", split({"Regex": p}, "Isolated"), BL_BARE))
case("falcon", "bytes", 40, pre_tokenizer=seq(
    "pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "ByteLevel", **BL},
    {"type": "Digits", "individual_digits": False}, split({"Regex": "[0-9][0-9][0-9]"}, "Isolated")))
case("deepseek sequence", "bytes", 40, pre_tokenizer=seq(
    "pretokenizers", split({"Regex": r"\p{N}{1,3}"}, "Isolated"), split({"Regex": "[一-龥぀-ゟ゠-ヿ]+"}, "Isolated"),
    split({"Regex": DEEPSEEK}, "Isolated"), BL_BARE))
case("starcoder", "bytes", 30, pre_tokenizer=seq(
    "pretokenizers", {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", **BL}))
case("byte level twice", "bytes", pre_tokenizer=seq("pretokenizers", {"type": "ByteLevel", **BL}, BL_BARE))

# splits
for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
    for pat in ({"String": " "}, {"String": "ab"}, {"Regex": "[0-9]"}, {"Regex": "x*"}):
        for invert in (False, True):
            case(f"split {behavior} {json.dumps(pat)} invert={invert}", "bytes", 12,
                 pre_tokenizer=seq("pretokenizers", split(pat, behavior, invert), BL_BARE))
    case(f"punctuation {behavior}", "bytes",
         pre_tokenizer=seq("pretokenizers", {"type": "Punctuation", "behavior": behavior}, BL_BARE))
for individual in (False, True):
    case(f"digits individual={individual}", "bytes", 24,
         pre_tokenizer=seq("pretokenizers", {"type": "Digits", "individual_digits": individual}, BL_BARE))
for t in ("Whitespace", "WhitespaceSplit"):
    case(t, "bytes", 40, pre_tokenizer=seq("pretokenizers", {"type": t}, BL_BARE))
case("no pre_tokenizer", "bytes", pre_tokenizer=None)

# metaspace
for scheme in ("always", "first", "never"):
    for sp in (True, False):
        meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": sp}
        case(f"metaspace {scheme} split={sp}", "chars", 24, normalizer=None, pre_tokenizer=meta, decoder=meta)
meta = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
case("metaspace legacy", "chars", 24, normalizer=None, pre_tokenizer=meta, decoder=meta)
meta = {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": True}
case("metaspace underscore", "chars", 24, normalizer=None, pre_tokenizer=meta, decoder=meta)
case("metaspace after strip", "chars", 24, normalizer={"type": "Strip", "strip_left": False, "strip_right": True},
     pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True})
case("gemma", "chars", 30, normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
     pre_tokenizer=split({"String": " "}, "MergedWithPrevious"),
     decoder=seq("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                 {"type": "Fuse"}))

# the model's options
case("llama2", "chars", 60)
case("unk fused", "chars", 24, model={"byte_fallback": False})
case("unk not fused", "chars", 24, model={"byte_fallback": False, "fuse_unk": False})
case("no unk", "chars", 24, model={"byte_fallback": False, "unk_token": None})
case("ignore_merges chars", "chars", 24, model={"ignore_merges": True})
case("ignore_merges bytes", "bytes", 24, model={"ignore_merges": True})
case("ignore_merges whole words", "bytes", 40, model={"ignore_merges": True},
     pre_tokenizer=seq("pretokenizers", split({"Regex": "...."}, "Isolated"), BL_BARE))

# normalizers
for n in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
    case(f"normalizer {n}", "bytes", 40, normalizer={"type": n})
for left, right in ((True, True), (True, False), (False, True), (False, False)):
    case(f"normalizer Strip {left} {right}", "bytes", 24,
         normalizer={"type": "Strip", "strip_left": left, "strip_right": right})
case("normalizer Prepend", "bytes", normalizer={"type": "Prepend", "prepend": ">> "})
for pat, content in (({"String": "ab"}, "x"), ({"String": "a"}, ""), ({"Regex": r"\s+"}, "_"),
                     ({"Regex": r"(.)\1"}, r"\1")):
    case(f"normalizer Replace {json.dumps(pat)}", "bytes", 24,
         normalizer={"type": "Replace", "pattern": pat, "content": content})
case("normalizer Sequence", "bytes", 40, normalizer=seq(
    "normalizers", {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    seq("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True})))

# added tokens
N_BYTES, N_CHARS = "N_BYTES", "N_CHARS"  # the next free id of a base


def flags_case(name, base, *tokens, n=40, **members):
    case(name, base, n, added_tokens=[{**t, "id": [base, t["id"]]} for t in tokens], **members)


for lstrip in (False, True):
    for rstrip in (False, True):
        for norm in (False, True):
            flags_case(f"added lstrip={lstrip} rstrip={rstrip} normalized={norm}", "bytes",
                       added(0, "<mask>", True, norm, lstrip, rstrip), added(1, "[X]", True, norm, lstrip, rstrip),
                       n=24)
flags_case("added single_word", "bytes", added(0, "word", False, False, single_word=True),
           added(1, "fox", False, True, single_word=True))
flags_case("added longest", "bytes", added(0, "<a>"), added(1, "<a>b"), added(2, "a"), added(3, "ab"), added(4, "abab"))
flags_case("added spaces", "bytes", added(0, "  ", False, False), added(1, "    ", False, False), added(2, " ", False, False, rstrip=True),
           added(3, "<mask>", True, False, lstrip=True, rstrip=True))
flags_case("added not special", "bytes", added(0, "<mask>", False), added(1, "[X]", False, False), added(2, "</s>"))
flags_case("added normalized lowercase", "bytes", added(0, "Hello", False, True), added(1, "FOX", False, False),
           added(2, "ﬁ", False, True), normalizer=seq("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}))
flags_case("added with prepend", "chars", added(0, "[X]", False, True), added(1, "<mask>", False, False))
flags_case("added in the vocabulary", "bytes", added(0, "a", False, True), added(1, "the", False, False), n=20)
flags_case("added with metaspace first", "chars", added(0, "<s>"), added(1, "<mask>", True, False, True, True), normalizer=None,
           pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True})
flags_case("added beyond the byte alphabet", "bytes", added(0, "<｜x｜>"), added(1, "é", False, False))

# post processors
def template(*items):
    return {"type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}} if i == "$" else {"SpecialToken": {"id": i, "type_id": 0}}
                       for i in items],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {i: {"id": i, "ids": [k + 1], "tokens": [i]} for k, i in enumerate(["<s>", "</s>"])}}


case("template bos", "chars", post_processor=template("<s>", "$"))
case("template both", "chars", post_processor=template("<s>", "$", "</s>"))
case("template several", "chars", post_processor=template("<s>", "</s>", "$", "</s>", "<s>"))
case("template in a sequence", "chars",
     post_processor=seq("processors", {"type": "ByteLevel", **BL}, template("<s>", "$", "</s>")))

# decoders
case("decoder null", "chars", 20, decoder=None)
case("decoder Replace regex", "chars", 20, decoder={"type": "Replace", "pattern": {"Regex": "▁+"}, "content": " "})
case("decoder Strip", "chars", 20, decoder=seq("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                {"type": "Strip", "content": " ", "start": 1, "stop": 1}))
case("decoder Fuse, Strip both", "chars", 20, decoder=seq(
    "decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 2, "stop": 0}))
case("decoder Fuse, Replace", "chars", 30, decoder=seq(
    "decoders", {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "▁th"}, "content": "*"},
    {"type": "Replace", "pattern": {"Regex": "▁+"}, "content": " "}))
case("decoder ByteFallback alone", "chars", 20, decoder={"type": "ByteFallback"})
case("decoder ByteLevel, Strip", "bytes", 20, decoder=seq(
    "decoders", {"type": "ByteLevel", **BL}, {"type": "Replace", "pattern": {"String": "the"}, "content": "THE"}))

bases = {"bytes": base_bytes(), "chars": base_chars()}
for c in cases:  # ids of added tokens: the vocabulary's own, else the next free ones
    for t in c["set"].get("added_tokens", []):
        vocab = bases[c["base"]]["model"]["vocab"]
        base, k = t["id"]
        known = [u for u in c["set"]["added_tokens"] if u["content"] not in vocab]
        t["id"] = vocab[t["content"]] if t["content"] in vocab else len(vocab) + known.index(t)
for c in cases:  # any ids in any order, byte tokens often, ids of no token too
    if "decoder" in c["set"] or c["name"] in ("llama2", "pattern llama3", "added not special"):
        n = len(bases[c["base"]]["model"]["vocab"]) + 6
        for _ in range(24):
            ids = [random.choice([random.randrange(n), random.randrange(3, 259), random.randrange(130, 259)])
                   for _ in range(random.randint(1, 24))]
            c["id_lists"].append({"ids": ids})
print(json.dumps({"made_by": "", "bases": bases, "cases": cases}, ensure_ascii=True))
