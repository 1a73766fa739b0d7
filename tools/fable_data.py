"""Training rows for the fable model: plain stories, and chat turns made from the same stories.

A chat row never holds machine-written prose. The request is a template filled with a subject (an
animal, a person, a thing) that the story itself names often near its beginning; the reply is the
story's own text: its opening, its first paragraphs, its ending, or all of a short story.
"""

import collections
import gzip
import random
import re

import numpy as np

from fable_bpe import ASSISTANT, BOS, END, EOS, SYSTEM, USER

SUBJECTS = """
ant badger bat bear beaver bee beetle bird blackbird boar bobolink bug bull bumblebee butterfly calf
camel cat caterpillar chick chicken chipmunk cow coyote crab cricket crocodile crow cuckoo deer
dog donkey dove dragon duck duckling eagle elephant elk fawn ferret firefly fish fox frog
goat goose gosling grasshopper hare hawk hedgehog hen heron horse hound jackal jay kingfisher
kitten ladybug lamb lark leopard lion lizard loon lynx magpie mink mole monkey moose mosquito moth
mouse mule muskrat nightingale opossum otter owl ox panther parrot partridge peacock pig pigeon pony
porcupine puppy quail rabbit raccoon rat raven robin rooster serpent shark sheep skunk snail
snake sparrow spider squirrel stag stork swallow swan tiger toad trout turkey turtle vulture wasp
weasel whale wolf woodchuck woodpecker wren
angel baby baker barber beggar blacksmith boy bride brother butcher carpenter child cobbler
countess daughter doctor dwarf elf emperor fairy farmer father fisherman friar gardener ghost giant
giantess girl goblin goldsmith goose-girl governess grandfather grandmother gypsy hunter huntsman
husband innkeeper judge king knight maiden man merchant mermaid miller minister mother musician
nurse ogre peasant pirate potter priest prince princess queen robber sailor schoolmaster
servant shepherd shoemaker sister soldier son sorcerer stepmother sultan swineherd tailor teacher
thief tinker traveler troll twins uncle widow wife witch wizard woman woodcutter
apple ball bell boat bottle bridge broom cake carriage castle cave cherry chimney church clock cloud
cottage crown diamond doll dream drum farm feather fiddle fire flower forest fountain garden hat
harp island jewel kite lake lamp mill mirror moon mountain nest palace pearl pie pipe pond pumpkin
rainbow river rose school sea ship shoe sleigh snow star stone storm sun sword tower
toy train treasure tree violin wagon wind winter wood
Christmas Easter Thanksgiving
""".split()
KNOWN = {s.lower(): s for s in SUBJECTS}
PLURALS = {"mice": "mouse", "geese": "goose", "wolves": "wolf", "elves": "elf", "men": "man",
           "oxen": "ox", "calves": "calf", "thieves": "thief", "children": "child", "fish": "fish",
           "ponies": "pony", "fairies": "fairy", "butterflies": "butterfly", "puppies": "puppy",
           "sheep": "sheep", "dwarfs": "dwarf", "dwarves": "dwarf", "women": "woman",
           "foxes": "fox", "princesses": "princess", "witches": "witch"}
BARE = {"christmas", "easter", "thanksgiving", "winter", "snow", "twins"}
FIRST_WORDS = re.compile(r"\b(once|there (was|were|lived)|long ago|(one|some|a|years) "
                         r"(day|time|morning|evening|years?|ago)|lived|named|called)\b", re.I)
UNIQUE = {"sun", "moon", "sea", "wind", "forest"}

ASK_OPENING = [
    "Tell me a story about {}.", "Tell me a story about {}.", "Tell me a story about {}.",
    "Please tell me a story about {}.", "Can you tell me a story about {}?",
    "Could you tell me a story about {}?", "Write a story about {}.", "Write me a story about {}.",
    "I want to hear a story about {}.", "I would like a story about {}, please.",
    "Do you know a story about {}?", "Tell a tale of {}.", "Tell me about {}.",
    "A story about {}, please.", "Give me a story about {}.", "tell me a story about {}",
    "story about {}", "write a story about {}", "Hello! Can you tell me a story about {}?",
    "Write a fairy tale about {}.", "Tell me a bedtime story about {}.",
    "Make up a story with {} in it.", "Tell me a story with {} in it."]
ASK_ANY = ["Tell me a story.", "Please tell me a story.", "Can you tell me a story?",
           "Write a story.", "I would like to hear a story.", "Tell me a bedtime story.",
           "Hello!", "Hi there! Tell me something.", "Once upon a time..."]
ASK_WHOLE = ["Tell me a short story about {}.", "Tell me a short story about {}.",
             "Write a short story about {}.", "Tell me a little story about {}.",
             "Please tell me a short story about {}.", "Can you tell me a short story about {}?",
             "I would like a short story about {}.", "Tell me a whole story about {}."]
ASK_BEGIN = ["How does the story of {} begin?", "Begin a story about {}.",
             "Start a story about {}.", "Tell me the beginning of a story about {}."]
ASK_MORE = ["What happened next?", "Go on.", "And then?", "Tell me more.", "Please go on.",
            "Continue the story.", "What happened then?", "More, please!"]
ASK_END = ["How does a story about {} end?", "Tell me the end of a story about {}.",
           "How did the story of {} end?"]
SYSTEM_TEXTS = ["You tell stories to children.", "You are a storyteller.",
                "You are a helpful assistant.", "You are a kind storyteller who tells old tales.",
                "You are Fable, a teller of fairy tales.", "Answer with a story.",
                "You are a friendly assistant that tells stories."]


def read_stories(path):
    """The stories of a corpus file, plain or .gz: prose with a line <|endoftext|> after each."""
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as f:
        stories = [s.strip() for s in f.read().split("<|endoftext|>")]
    return [s for s in stories if s]


def subjects_of(story):
    """Up to three subjects that the first 300 words name at least twice, most frequent first."""
    counts = collections.Counter()
    for word in re.findall(r"[A-Za-z][A-Za-z-]*", story)[:300]:
        word = word.lower()
        word = PLURALS.get(word, word)
        if word not in KNOWN and word.endswith("s") and word[:-1] in KNOWN:
            word = word[:-1]
        if word in KNOWN:
            counts[word] += 1
    # A particular animal says more of a story than "man" or "son", which occur everywhere.
    common = {"man", "woman", "boy", "girl", "mother", "father", "son", "child", "brother",
              "sister", "wife", "husband", "wood", "tree", "daughter", "fire", "bird"}
    ranked = sorted(counts, key=lambda w: (-counts[w] * (0.5 if w in common else 1.0), w))
    return [KNOWN[w] for w in ranked[:3] if counts[w] >= 2]


def begins_afresh(story):
    """Whether the first words introduce somebody, as those of a later chapter do not."""
    return FIRST_WORDS.search(story[:160]) is not None


def with_article(rng, subject):
    low = subject.lower()
    if low in BARE:
        return "the " + subject if low == "twins" else subject
    if low in UNIQUE:
        return "the " + subject
    article = "an" if low[0] in "aeiou" and not low.startswith("uni") else "a"
    kind = rng.random()
    if kind < 0.07:
        return "the " + subject
    if kind < 0.14:
        return "a little " + subject
    return article + " " + subject


class Corpus:
    """The stories as ids, and rows of row_tokens ids drawn from them without end.

    rows(n) gives int64 [n][row_tokens]. A share of chat_share rows is chat: whole chats, each
    begun by BOS, one after another until the row is full. The others are cut from one endless
    stream of BOS story EOS, with the stories in a new order each time round.
    """

    def __init__(self, bpe, stories, seed=1, chat_share=0.2):
        self.rng = random.Random(seed)
        self.bpe = bpe
        self.chat_share = chat_share
        self.ids = [bpe.encode(s) for s in stories]
        self.subjects = [subjects_of(s) for s in stories]
        self.paragraphs = [[bpe.encode(p) for p in self.split_paragraphs(s)] for s in stories]
        self.fresh = [i for i, s in enumerate(stories) if begins_afresh(s)]
        self.stream = []
        self.order = []
        self.rounds = 0

    @staticmethod
    def split_paragraphs(story):
        """Paragraphs that still carry the blank line after them, so that they join to the story."""
        parts = story.split("\n\n")
        return [p + "\n\n" for p in parts[:-1]] + parts[-1:]

    def rows(self, n, row_tokens):
        out = np.empty((n, row_tokens), np.int64)
        for i in range(n):
            if self.rng.random() < self.chat_share:
                row = []
                while len(row) < row_tokens:
                    row += self.chat(row_tokens - len(row))
            else:
                while len(self.stream) < row_tokens:
                    self.stream += self.next_story()
                row = self.stream
                self.stream = self.stream[row_tokens:]
            out[i] = row[:row_tokens]
        return out

    def next_story(self):
        if not self.order:
            self.order = self.rng.sample(range(len(self.ids)), len(self.ids))
            self.rounds += 1
        return [BOS] + self.ids[self.order.pop()] + [EOS]

    def chat(self, room):
        """One chat about a story drawn by chance; a reply that is cut short has no end mark."""
        rng = self.rng
        s = self.draw_story()
        if rng.random() < 0.25:         # short stories more often: from them it learns to stop
            for _ in range(8):
                if len(self.ids[s]) < min(room - 40, 800):
                    break
                s = self.draw_story()
        head = [BOS]
        if rng.random() < 0.2:
            head += self.turn(SYSTEM, rng.choice(SYSTEM_TEXTS))
        whole = self.ids[s]
        about = with_article(rng, rng.choice(self.subjects[s])) if self.subjects[s] else None
        kind = rng.random()
        if about is None or kind < 0.04:
            fits = len(whole) < 800
            return head + self.ask(ASK_ANY, "") + whole + [END] if fits else \
                head + self.ask(ASK_ANY, "") + whole[:room]
        if len(whole) < 800:
            return head + self.ask(ASK_WHOLE if kind < 0.4 else ASK_OPENING, about) + whole + [END]
        if kind < 0.70:
            return head + self.ask(ASK_OPENING, about) + whole[:room]
        if kind < 0.92:
            return head + self.in_turns(s, about)
        return head + self.ask(ASK_END, about) + self.ending(s) + [END]

    def draw_story(self):
        """One that begins afresh more often than not: a reply should read as a beginning."""
        if self.fresh and self.rng.random() < 0.6:
            return self.rng.choice(self.fresh)
        return self.rng.randrange(len(self.ids))

    def ask(self, templates, about):
        text = self.rng.choice(templates).format(about)
        return self.turn(USER, text) + [ASSISTANT]

    def turn(self, role, text):
        return [role] + self.bpe.encode(text) + [END]

    def in_turns(self, s, about):
        """A story told over two to four turns, some paragraphs at a time."""
        out, at, parts = [], 0, self.paragraphs[s]
        for t in range(self.rng.randint(2, 4)):
            if at >= len(parts):
                break
            want, reply = self.rng.randint(60, 220), []
            while at < len(parts) and len(reply) < want:
                reply, at = reply + parts[at], at + 1
            text = self.bpe.decode(reply).strip()
            out += self.ask(ASK_BEGIN + ASK_OPENING if t == 0 else ASK_MORE, about)
            out += self.bpe.encode(text) + [END]
        return out

    def ending(self, s):
        """The last paragraphs of a story, about 250 tokens of them."""
        reply = []
        for part in reversed(self.paragraphs[s]):
            reply = part + reply
            if len(reply) > 250:
                break
        return reply


def recall_at_1(stories, embed, draws, n_sentences=1):
    """How often a text of a story finds one of the same story before those of all others.

    stories: the sentences of each. A draw takes two texts of n_sentences neighbours without a common
    sentence from each story that has them; the vectors (embed(texts), rows of length one) of the first
    are compared with all the second ones. The draws follow from their number alone.
    """
    rng, hits, asked = random.Random(n_sentences), 0, 0
    stories = [s for s in stories if len(s) >= 2 * n_sentences]
    for _ in range(draws):
        pairs = []
        for s in stories:
            cut = rng.randrange(n_sentences, len(s) - n_sentences + 1)
            at = rng.randrange(0, cut - n_sentences + 1), rng.randrange(cut, len(s) - n_sentences + 1)
            pairs.append([" ".join(s[a:a + n_sentences]) for a in at])
        vectors = np.asarray(embed([p[0] for p in pairs] + [p[1] for p in pairs]))
        near = (vectors[:len(pairs)] @ vectors[len(pairs):].T).argmax(1)
        hits += int((near == np.arange(len(pairs))).sum())
        asked += len(pairs)
    return hits / asked
