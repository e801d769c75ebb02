"""Lexicon of `translation`: words with their forms in English, French and Bangla.

Within one class (nouns, adjectives for persons ...), each word has exactly one counterpart in each of the other two
languages. French nouns for persons have the gender of the person, so the noun determines "he" or "she" in English and
in French. Bangla nouns, adjectives and verbs have no gender, and Bangla verbs have no number.
"""

from __future__ import annotations

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun.

    Args:
        kind: "man", "woman", "thing m" or "thing f"; determines the French gender and the pronouns.
        english: singular and plural.
        french: singular and plural.
        bangla: bare form.
        genitive: bare form with the ending -র, -এর or -য়ের.
        classifier: suffix of numerals before the noun, টি or জন.
    """

    kind: str
    english: tuple[str, str]
    french: tuple[str, str]
    bangla: str
    genitive: str
    classifier: str = "টি"


NOUNS = (
    Noun("man", ("boy", "boys"), ("garçon", "garçons"), "ছেলে", "ছেলের"),
    Noun("man", ("man", "men"), ("homme", "hommes"), "লোক", "লোকের", "জন"),
    Noun("man", ("farmer", "farmers"), ("fermier", "fermiers"), "কৃষক", "কৃষকের", "জন"),
    Noun("man", ("gardener", "gardeners"), ("jardinier", "jardiniers"), "মালি", "মালির", "জন"),
    Noun("man", ("thief", "thieves"), ("voleur", "voleurs"), "চোর", "চোরের", "জন"),
    Noun("woman", ("girl", "girls"), ("fille", "filles"), "মেয়ে", "মেয়ের"),
    Noun("woman", ("woman", "women"), ("femme", "femmes"), "মহিলা", "মহিলার", "জন"),
    Noun("woman", ("witch", "witches"), ("sorcière", "sorcières"), "ডাইনি", "ডাইনির", "জন"),
    Noun("woman", ("princess", "princesses"), ("princesse", "princesses"), "রাজকন্যা", "রাজকন্যার", "জন"),
    Noun("woman", ("widow", "widows"), ("veuve", "veuves"), "বিধবা", "বিধবার", "জন"),
    Noun("thing m", ("book", "books"), ("livre", "livres"), "বই", "বইয়ের"),
    Noun("thing m", ("hat", "hats"), ("chapeau", "chapeaux"), "টুপি", "টুপির"),
    Noun("thing m", ("mirror", "mirrors"), ("miroir", "miroirs"), "আয়না", "আয়নার"),
    Noun("thing m", ("bag", "bags"), ("sac", "sacs"), "ব্যাগ", "ব্যাগের"),
    Noun("thing m", ("ring", "rings"), ("anneau", "anneaux"), "আংটি", "আংটির"),
    Noun("thing m", ("umbrella", "umbrellas"), ("parapluie", "parapluies"), "ছাতা", "ছাতার"),
    Noun("thing f", ("key", "keys"), ("clé", "clés"), "চাবি", "চাবির"),
    Noun("thing f", ("letter", "letters"), ("lettre", "lettres"), "চিঠি", "চিঠির"),
    Noun("thing f", ("lamp", "lamps"), ("lampe", "lampes"), "বাতি", "বাতির"),
    Noun("thing f", ("box", "boxes"), ("boîte", "boîtes"), "বাক্স", "বাক্সের"),
    Noun("thing f", ("chair", "chairs"), ("chaise", "chaises"), "চেয়ার", "চেয়ারের"),
    Noun("thing f", ("plate", "plates"), ("assiette", "assiettes"), "থালা", "থালার"),
)


class Adjective(NamedTuple):
    """An adjective.

    Args:
        position: "pre" or "post": before or after the noun in French. English and Bangla put "pre" before "post".
        of: kinds of noun that the adjective can describe: "person", "thing" or both.
        english: the only form.
        french: masculine and feminine singular, then plural; "a|b" is spelled a before a consonant and b before a
            vowel.
        bangla: the only form.
    """

    position: str
    of: str
    english: str
    french: tuple[str, str, str, str]
    bangla: str


ADJECTIVES = (
    Adjective("pre", "person thing", "small", ("petit", "petite", "petits", "petites"), "ছোট"),
    Adjective("pre", "person", "young", ("jeune", "jeune", "jeunes", "jeunes"), "অল্পবয়সী"),
    Adjective("pre", "thing", "big", ("grand", "grande", "grands", "grandes"), "বড়"),
    Adjective("pre", "thing", "old", ("vieux|vieil", "vieille", "vieux", "vieilles"), "পুরোনো"),
    Adjective("pre", "thing", "new", ("nouveau|nouvel", "nouvelle", "nouveaux", "nouvelles"), "নতুন"),
    Adjective("pre", "thing", "beautiful", ("beau|bel", "belle", "beaux", "belles"), "সুন্দর"),
    Adjective("post", "person", "happy", ("heureux", "heureuse", "heureux", "heureuses"), "সুখী"),
    Adjective("post", "person", "tired", ("fatigué", "fatiguée", "fatigués", "fatiguées"), "ক্লান্ত"),
    Adjective("post", "person", "sad", ("triste", "triste", "tristes", "tristes"), "দুঃখী"),
    Adjective("post", "person", "brave", ("courageux", "courageuse", "courageux", "courageuses"), "সাহসী"),
    Adjective("post", "person", "rich", ("riche", "riche", "riches", "riches"), "ধনী"),
    Adjective("post", "person thing", "strange", ("étrange", "étrange", "étranges", "étranges"), "অদ্ভুত"),
    Adjective("post", "thing", "red", ("rouge", "rouge", "rouges", "rouges"), "লাল"),
    Adjective("post", "thing", "black", ("noir", "noire", "noirs", "noires"), "কালো"),
    Adjective("post", "thing", "white", ("blanc", "blanche", "blancs", "blanches"), "সাদা"),
    Adjective("post", "thing", "heavy", ("lourd", "lourde", "lourds", "lourdes"), "ভারী"),
    Adjective("post", "thing", "expensive", ("cher", "chère", "chers", "chères"), "দামি"),
)


class Verb(NamedTuple):
    """A verb.

    Args:
        object: kinds of object: "person", "thing", both, or "" for none.
        english: base form, third person singular, past.
        french: third person singular and plural of the present, masculine participle, future stem.
        bangla: present, past, future, negated past (third person, ordinary politeness).
        etre: whether the French past uses être, so that its participle agrees with the subject.
    """

    object: str
    english: tuple[str, str, str]
    french: tuple[str, str, str, str]
    bangla: tuple[str, str, str, str]
    etre: bool = False


VERBS = (
    Verb(
        "person thing",
        ("see", "sees", "saw"),
        ("voit", "voient", "vu", "verr"),
        ("দেখে", "দেখল", "দেখবে", "দেখেনি"),
    ),
    Verb(
        "person thing",
        ("look for", "looks for", "looked for"),
        ("cherche", "cherchent", "cherché", "chercher"),
        ("খোঁজে", "খুঁজল", "খুঁজবে", "খোঁজেনি"),
    ),
    Verb(
        "person thing",
        ("find", "finds", "found"),
        ("trouve", "trouvent", "trouvé", "trouver"),
        ("খুঁজে পায়", "খুঁজে পেল", "খুঁজে পাবে", "খুঁজে পায়নি"),
    ),
    Verb(
        "person",
        ("help", "helps", "helped"),
        ("aide", "aident", "aidé", "aider"),
        ("সাহায্য করে", "সাহায্য করল", "সাহায্য করবে", "সাহায্য করেনি"),
    ),
    Verb(
        "person",
        ("call", "calls", "called"),
        ("appelle", "appellent", "appelé", "appeller"),
        ("ডাকে", "ডাকল", "ডাকবে", "ডাকেনি"),
    ),
    Verb(
        "person",
        ("thank", "thanks", "thanked"),
        ("remercie", "remercient", "remercié", "remercier"),
        ("ধন্যবাদ দেয়", "ধন্যবাদ দিল", "ধন্যবাদ দেবে", "ধন্যবাদ দেয়নি"),
    ),
    Verb(
        "person",
        ("follow", "follows", "followed"),
        ("suit", "suivent", "suivi", "suivr"),
        ("অনুসরণ করে", "অনুসরণ করল", "অনুসরণ করবে", "অনুসরণ করেনি"),
    ),
    Verb(
        "thing",
        ("buy", "buys", "bought"),
        ("achète", "achètent", "acheté", "achèter"),
        ("কেনে", "কিনল", "কিনবে", "কেনেনি"),
    ),
    Verb(
        "thing",
        ("sell", "sells", "sold"),
        ("vend", "vendent", "vendu", "vendr"),
        ("বিক্রি করে", "বিক্রি করল", "বিক্রি করবে", "বিক্রি করেনি"),
    ),
    Verb(
        "thing",
        ("steal", "steals", "stole"),
        ("vole", "volent", "volé", "voler"),
        ("চুরি করে", "চুরি করল", "চুরি করবে", "চুরি করেনি"),
    ),
    Verb(
        "thing",
        ("clean", "cleans", "cleaned"),
        ("nettoie", "nettoient", "nettoyé", "nettoier"),
        ("পরিষ্কার করে", "পরিষ্কার করল", "পরিষ্কার করবে", "পরিষ্কার করেনি"),
    ),
    Verb(
        "thing",
        ("break", "breaks", "broke"),
        ("casse", "cassent", "cassé", "casser"),
        ("ভাঙে", "ভাঙল", "ভাঙবে", "ভাঙেনি"),
    ),
    Verb(
        "thing",
        ("draw", "draws", "drew"),
        ("dessine", "dessinent", "dessiné", "dessiner"),
        ("আঁকে", "আঁকল", "আঁকবে", "আঁকেনি"),
    ),
    Verb(
        "",
        ("arrive", "arrives", "arrived"),
        ("arrive", "arrivent", "arrivé", "arriver"),
        ("পৌঁছায়", "পৌঁছাল", "পৌঁছাবে", "পৌঁছায়নি"),
        etre=True,
    ),
    Verb(
        "",
        ("leave", "leaves", "left"),
        ("part", "partent", "parti", "partir"),
        ("চলে যায়", "চলে গেল", "চলে যাবে", "চলে যায়নি"),
        etre=True,
    ),
    Verb(
        "",
        ("return", "returns", "returned"),
        ("revient", "reviennent", "revenu", "reviendr"),
        ("ফিরে আসে", "ফিরে এল", "ফিরে আসবে", "ফিরে আসেনি"),
        etre=True,
    ),
    Verb("", ("sleep", "sleeps", "slept"), ("dort", "dorment", "dormi", "dormir"), ("ঘুমায়", "ঘুমাল", "ঘুমাবে", "ঘুমায়নি")),
    Verb(
        "",
        ("sing", "sings", "sang"),
        ("chante", "chantent", "chanté", "chanter"),
        ("গান গায়", "গান গাইল", "গান গাইবে", "গান গায়নি"),
    ),
    Verb("", ("laugh", "laughs", "laughed"), ("rit", "rient", "ri", "rir"), ("হাসে", "হাসল", "হাসবে", "হাসেনি")),
    Verb("", ("cry", "cries", "cried"), ("pleure", "pleurent", "pleuré", "pleurer"), ("কাঁদে", "কাঁদল", "কাঁদবে", "কাঁদেনি")),
    Verb("", ("dance", "dances", "danced"), ("danse", "dansent", "dansé", "danser"), ("নাচে", "নাচল", "নাচবে", "নাচেনি")),
)
FALL = Verb(
    "",
    ("fall", "falls", "fell"),
    ("tombe", "tombent", "tombé", "tomber"),
    ("পড়ে যায়", "পড়ে গেল", "পড়ে যাবে", "পড়ে যায়নি"),
    etre=True,
)
"""An intransitive verb whose subject may be a person or a thing."""

# (kinds of noun, English, French, Bangla); the Bangla word follows a genitive, and the phrase precedes its noun.
PREPOSITIONS = (
    ("person thing", "near", "près de|d'", "কাছের"),
    ("person thing", "behind", "derrière", "পিছনের"),
    ("person thing", "in front of", "devant", "সামনের"),
    ("person thing", "next to", "à côté de|d'", "পাশের"),
    ("thing", "under", "sous", "নিচের"),
)
# (English, French, Bangla); the classifier follows the Bangla numeral without a space.
NUMERALS = (("two", "deux", "দু"), ("three", "trois", "তিন"))
# Adverb at the beginning of a sentence, by tense.
DAYS = {
    "past": ("yesterday", "hier", "গতকাল"),
    "present": ("today", "aujourd'hui", "আজ"),
    "future": ("tomorrow", "demain", "আগামীকাল"),
}
