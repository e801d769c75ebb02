"""The translation corpora pass checks by hand and an independent agreement check, and have one answer per source."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

import pytest

from glassformer.base.config import Config
from glassformer.corpora import find_pair_corpus
from glassformer.corpora.synchronous import Rules, SynchronousGrammar
from glassformer.corpora.translation.clauses import LANGUAGES, translation_grammar
from glassformer.corpora.translation.corpus import TRANSLATIONS, draw, readings
from glassformer.corpora.translation.lexicon import VERBS
from glassformer.corpora.translation.phrases import verb_forms
from glassformer.corpora.translation.spelling import write

NAMES = ["translation", "translation-fr-en", "translation-en-bn", "translation-bn-en"]

# Written by hand, not by the grammar.
EXPECTED = [
    ("The small boy sees the keys.", "Le petit garçon voit les clés.", "ছোট ছেলেটি চাবিগুলো দেখে।"),
    ("Yesterday the young women left.", "Hier, les jeunes femmes sont parties.", "গতকাল অল্পবয়সী মহিলারা চলে গেল।"),
    ("Tomorrow the man will sing.", "Demain, l'homme chantera.", "আগামীকাল লোকটি গান গাইবে।"),
    ("Today a plate is red.", "Aujourd'hui, une assiette est rouge.", "আজ একটি থালা লাল।"),
    (
        "The keys that the woman near the lamp sees are old.",
        "Les clés que la femme près de la lampe voit sont vieilles.",
        "বাতিটির কাছের মহিলাটি যে চাবিগুলো দেখে, সেগুলো পুরোনো।",
    ),
    (
        "The keys that the women bought were beautiful.",
        "Les clés que les femmes ont achetées étaient belles.",
        "মহিলারা যে চাবিগুলো কিনল, সেগুলো সুন্দর ছিল।",
    ),
    (
        "The letter that a thief stole was not expensive.",
        "La lettre qu'un voleur a volée n'était pas chère.",
        "একজন চোর যে চিঠিটি চুরি করল, সেটি দামি ছিল না।",
    ),
    (
        "The princess who followed the thieves is tired.",
        "La princesse qui a suivi les voleurs est fatiguée.",
        "যে রাজকন্যাটি চোরদেরকে অনুসরণ করল, সে ক্লান্ত।",
    ),
    (
        "The widow did not find the old ring.",
        "La veuve n'a pas trouvé le vieil anneau.",
        "বিধবাটি পুরোনো আংটিটি খুঁজে পায়নি।",
    ),
    (
        "The girls do not help the gardener.",
        "Les filles n'aident pas le jardinier.",
        "মেয়েরা মালিটিকে সাহায্য করে না।",
    ),
    (
        "The witches will not thank the farmers.",
        "Les sorcières ne remercieront pas les fermiers.",
        "ডাইনিরা কৃষকদেরকে ধন্যবাদ দেবে না।",
    ),
    (
        "The woman buys the book because it is new.",
        "La femme achète le livre parce qu'il est nouveau.",
        "মহিলাটি বইটি কেনে, কারণ সেটি নতুন।",
    ),
    (
        "The woman buys the book because she is rich.",
        "La femme achète le livre parce qu'elle est riche.",
        "মহিলাটি বইটি কেনে, কারণ সে ধনী।",
    ),
    (
        "The boy called the girls because they were sad.",
        "Le garçon a appelé les filles parce qu'elles étaient tristes.",
        "ছেলেটি মেয়েদেরকে ডাকল, কারণ তারা দুঃখী ছিল।",
    ),
    (
        "The brave farmers arrived, but they did not sleep.",
        "Les fermiers courageux sont arrivés, mais ils n'ont pas dormi.",
        "সাহসী কৃষকেরা পৌঁছাল, কিন্তু তারা ঘুমায়নি।",
    ),
    (
        "When the girl sings, two men dance.",
        "Quand la fille chante, deux hommes dansent.",
        "যখন মেয়েটি গান গায়, তখন দুজন লোক নাচে।",
    ),
    (
        "When the girls returned, they cried.",
        "Quand les filles sont revenues, elles ont pleuré.",
        "যখন মেয়েরা ফিরে এল, তখন তারা কাঁদল।",
    ),
    (
        "The boys laugh and the lamp falls.",
        "Les garçons rient et la lampe tombe.",
        "ছেলেরা হাসে আর বাতিটি পড়ে যায়।",
    ),
    (
        "The boy finds the hat that the widow sells.",
        "Le garçon trouve le chapeau que la veuve vend.",
        "বিধবাটি যে টুপিটি বিক্রি করে, ছেলেটি সেটি খুঁজে পায়।",
    ),
    (
        "The girl sees the boys who broke the mirror.",
        "La fille voit les garçons qui ont cassé le miroir.",
        "যে ছেলেরা আয়নাটি ভাঙল, মেয়েটি তাদেরকে দেখে।",
    ),
    (
        "Two girls cleaned an umbrella next to the beautiful chairs.",
        "Deux filles ont nettoyé un parapluie à côté des belles chaises.",
        "দুটি মেয়ে সুন্দর চেয়ারগুলোর পাশের একটি ছাতা পরিষ্কার করল।",
    ),
    (
        "A man in front of a box looks for three rings.",
        "Un homme devant une boîte cherche trois anneaux.",
        "একটি বাক্সের সামনের একজন লোক তিনটি আংটি খোঁজে।",
    ),
    (
        "The book near a bag behind the thief is heavy.",
        "Le livre près d'un sac derrière le voleur est lourd.",
        "চোরটির পিছনের একটি ব্যাগের কাছের বইটি ভারী।",
    ),
    (
        "The beautiful ring under the small white plates will fall.",
        "Le bel anneau sous les petites assiettes blanches tombera.",
        "ছোট সাদা থালাগুলোর নিচের সুন্দর আংটিটি পড়ে যাবে।",
    ),
    (
        "The princess draws the new rings near the mirror.",
        "La princesse dessine les nouveaux anneaux près du miroir.",
        "রাজকন্যাটি আয়নাটির কাছের নতুন আংটিগুলো আঁকে।",
    ),
]


@pytest.mark.parametrize(("english", "french", "bangla"), EXPECTED)
def test_translations_by_hand(english: str, french: str, bangla: str) -> None:
    bangla = unicodedata.normalize("NFC", bangla)
    assert find_pair_corpus("translation").answer(english) == french
    assert find_pair_corpus("translation-en-bn").answer(english) == bangla
    assert find_pair_corpus("translation-fr-en").answer(french) == english
    assert find_pair_corpus("translation-bn-en").answer(bangla) == english
    assert len(EXPECTED) >= 25


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("translation", ""),
        ("translation", "."),
        ("translation", "The boy"),
        ("translation", "the small boy sees the keys."),
        ("translation", "The small boy see the keys."),
        ("translation", "The small boy sees the keys"),
        ("translation", "The  small boy sees the keys."),
        ("translation", "The boy sleeps."),  # correct, but shorter than any sentence of the corpus
        ("translation", "The young woman left yesterday."),
        ("translation", "The keys that the woman near the door sees are old."),
        ("translation", "The woman reads the book because it is new."),
        ("translation", "When the girl sings, the two men dance."),
        ("translation-fr-en", "Le petit garçon voit le clés."),
        ("translation-fr-en", "Le petite garçon voit les clés."),
        ("translation-fr-en", "La veuve n'a pas trouvé le vieux anneau."),
        ("translation-fr-en", "Les clés que les femmes ont acheté étaient belles."),
        ("translation-fr-en", "Les sacs à côté de le livre sont rouges."),
        ("translation-bn-en", "ছোট ছেলেটি দেখে চাবিগুলো।"),
    ],
)
def test_sentences_outside_the_corpus_have_no_translation(name: str, text: str) -> None:
    assert find_pair_corpus(name).answer(text) is None


@pytest.mark.thorough
@pytest.mark.parametrize("corpus", TRANSLATIONS, ids=NAMES)
def test_a_source_has_one_parse_and_gives_its_target(corpus: object) -> None:
    known = find_pair_corpus(getattr(corpus, "name", ""))
    for source, target in known.pairs(1000, seed=5):
        assert known.answer(source) == target
        assert len(readings(source, getattr(corpus, "source", ""))) == 1, source
        assert "\t" not in source + target
        assert "\n" not in source + target


@pytest.mark.thorough
def test_fifty_thousand_sentences_correspond_one_to_one() -> None:
    seen: dict[str, dict[str, tuple[str, ...]]] = {language: {} for language in LANGUAGES}
    distinct = 0
    for index in range(50_000):
        derivation = draw(1, index)
        texts = tuple(write(derivation.words(language), language) for language in LANGUAGES)
        distinct += texts[0] not in seen["english"]
        for language, text in zip(LANGUAGES, texts, strict=True):
            assert seen[language].setdefault(text, texts) == texts
    assert distinct > 48_000


def test_there_are_more_than_a_billion_sentences() -> None:
    """Derivations are counted by length, and each derivation is a different sentence (shown above)."""
    grammar = translation_grammar()
    known: dict[str, Counter[int]] = {}

    def lengths(category: str) -> Counter[int]:
        if category not in known:
            total: Counter[int] = Counter()
            for rule in grammar.rules[category]:
                here = Counter(
                    {sum(isinstance(item, str) and item != "," for item in rule.items_by_language["english"]): 1}
                )
                for part in rule.parts:
                    grown: Counter[int] = Counter()
                    for n, count in here.items():
                        for m, others in lengths(part).items():
                            if n + m <= 12:
                                grown[n + m] += count * others
                    here = grown
                total.update(here)
            known[category] = total
        return known[category]

    counts = lengths("sentence")
    assert sum(counts[n] for n in range(5, 13)) > 10**9


FEMININE = "fille femme sorcière princesse veuve clé lettre lampe boîte chaise assiette".split()  # noqa: SIM905
MASCULINE = "garçon homme fermier jardinier voleur livre chapeau miroir sac anneau parapluie".split()  # noqa: SIM905


def gender_and_number(noun: str) -> tuple[str, str]:
    for number, bare in (("sg", noun), ("pl", noun[:-1])):
        if bare in FEMININE or bare in MASCULINE:
            return ("f" if bare in FEMININE else "m"), number
    raise AssertionError(noun)


ARTICLES = {
    "le": ("m", "sg"),
    "la": ("f", "sg"),
    "un": ("m", "sg"),
    "une": ("f", "sg"),
    "du": ("m", "sg"),
    "les": ("", "pl"),
    "des": ("", "pl"),
    "deux": ("", "pl"),
    "trois": ("", "pl"),
}
BEFORE = {
    "petit": "m sg",
    "petite": "f sg",
    "petits": "m pl",
    "petites": "f pl",
    "grand": "m sg",
    "grande": "f sg",
    "grands": "m pl",
    "grandes": "f pl",
    "vieux": "m",
    "vieil": "m sg",
    "vieille": "f sg",
    "vieilles": "f pl",
    "nouveau": "m sg",
    "nouvel": "m sg",
    "nouvelle": "f sg",
    "nouveaux": "m pl",
    "nouvelles": "f pl",
    "beau": "m sg",
    "bel": "m sg",
    "belle": "f sg",
    "beaux": "m pl",
    "belles": "f pl",
    "jeune": "sg",
    "jeunes": "pl",
}


def test_french_noun_phrases_agree_by_an_independent_table() -> None:
    looked_at = 0
    for source, _ in find_pair_corpus("translation-fr-en").pairs(3000, seed=6):
        words = re.findall(r"[\w]+'?", source.lower())
        for place, word in enumerate(words):
            noun = word.rstrip("'")
            bare = noun in FEMININE + MASCULINE or noun[:-1] in FEMININE + MASCULINE
            if not bare:
                continue
            features = gender_and_number(noun)
            front = place - 1
            while words[front] in BEFORE:
                assert set(BEFORE[words[front]].split()) <= set(features), source
                front -= 1
            if words[front] == "l'":
                assert features[1] == "sg", source
                assert words[front + 1][0] in "aho", source
            else:
                gender, number = ARTICLES[words[front]]
                assert gender in ("", features[0]), source
                assert number == features[1], source
            looked_at += 1
    assert looked_at > 5000
    assert all(gender_and_number(noun)[0] == "m" for noun in ("anneaux", "hommes"))


def test_pronouns_and_their_verbs_agree() -> None:
    """English and French pronouns correspond; French verbs end in -nt in the plural, and never in the singular.

    The exception is the singular "revient".
    """
    pairs = {"he": "il", "she": "elle", "it": "il elle", "they": "ils elles"}
    seen: Counter[str] = Counter()
    for english, french in find_pair_corpus("translation").pairs(4000, seed=7):
        ours = re.findall(r"\b(he|she|it|they)\b", english)
        theirs = re.findall(r"\b(ils?|elles?) (?:ne |n')?(\w+)", french)
        assert len(ours) == len(theirs), (english, french)
        for pronoun, (french_pronoun, verb) in zip(ours, theirs, strict=True):
            assert french_pronoun in pairs[pronoun].split()
            assert (verb.endswith("nt") and verb != "revient") == french_pronoun.endswith("s"), french
            seen[pronoun] += 1
        assert not re.search(r"\bthey (is|was|does|\w+[^s]s)\b", english), english
        assert not re.search(r"\b(he|she|it) (are|were|do|see|look|find|cry|fall)\b", english), english
    assert min(seen[pronoun] for pronoun in pairs) > 200


@pytest.mark.parametrize(
    ("english", "present", "perfect", "future"),
    [
        ("see", "voient", "ont vu", "verront"),
        ("look for", "cherchent", "ont cherché", "chercheront"),
        ("call", "appellent", "ont appelé", "appelleront"),
        ("follow", "suivent", "ont suivi", "suivront"),
        ("buy", "achètent", "ont acheté", "achèteront"),
        ("sell", "vendent", "ont vendu", "vendront"),
        ("clean", "nettoient", "ont nettoyé", "nettoieront"),
        ("leave", "partent", "sont parties", "partiront"),
        ("return", "reviennent", "sont revenues", "reviendront"),
        ("sleep", "dorment", "ont dormi", "dormiront"),
        ("laugh", "rient", "ont ri", "riront"),
    ],
)
def test_irregular_french_verbs(english: str, present: str, perfect: str, future: str) -> None:
    verb = next(verb for verb in VERBS if verb.english[0] == english)
    feminine_plural = 3 if verb.etre else 0
    forms = [verb_forms(verb, "pl", tense, "yes", feminine_plural)[1] for tense in ("present", "past", "future")]
    assert forms == [present, perfect, future]


def test_spelling() -> None:
    for index in range(3000):
        derivation = draw(8, index)
        english, french, bangla = (write(derivation.words(language), language) for language in LANGUAGES)
        assert re.fullmatch(r"[A-Z][a-z]*(,? [a-z]+)+\.", english), english
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", english), english
        assert not re.search(
            r"\b(de les?|de une?|que une?|que elles?|que ils?|n[e] [aeiouéh]|l[ea] [aeiouéh])\b", french
        )
        assert re.fullmatch(r"[\w' ,]+\.", french), french
        assert bangla.endswith("।")
        assert unicodedata.is_normalized("NFC", bangla)
        assert re.fullmatch(r"[\u0980-\u09FF ,]+।", bangla), bangla
        assert max(len(text.split()) for text in (english, french, bangla)) <= 25
        assert len(english.split()) >= 5


@pytest.mark.parametrize("name", NAMES)
def test_pairs_depend_only_on_seed_and_number(name: str) -> None:
    corpus = find_pair_corpus(name)
    many = list(corpus.pairs(30, seed=2))
    assert list(corpus.pairs(7, seed=2)) == many[:7]
    assert list(corpus.pairs(30, seed=3)) != many
    task = {"train.task": "translate", "model.family": "encoder-decoder"}
    assert Config().with_changes({**task, **corpus.recommended("translate")}).model.context == 64
    assert corpus.tasks == ("translate",)


def test_all_directions_have_the_same_sentences() -> None:
    to_french, to_english, to_bangla, from_bangla = (list(find_pair_corpus(name).pairs(20, seed=4)) for name in NAMES)
    assert [pair[::-1] for pair in to_french] == to_english
    assert [pair[::-1] for pair in to_bangla] == from_bangla
    assert [source for source, _ in to_french] == [source for source, _ in to_bangla]


def test_a_small_synchronous_grammar_finds_every_reading() -> None:
    rules = Rules(["one", "two"])
    rules.add("s", ["n", "n"], "0 sees 1", "1 0 voit")
    rules.add("n", [], "a", "b|c")
    rules.add("n", ["n2"], "a 0", "0 d")
    rules.choose("n", "n2", weight=2)
    rules.add("n2", [], "x", "y")
    grammar = SynchronousGrammar(rules, "s")
    assert [d.words("two") for d in grammar.parse(["a", "x", "sees", "a"], "one")] == [["b|c", "y", "d", "voit"]]
    assert len(grammar.parse(["c", "y", "d", "voit"], "two")) == 1
    assert grammar.parse(["a", "sees"], "one") == []
    assert grammar.parse([], "one") == []
