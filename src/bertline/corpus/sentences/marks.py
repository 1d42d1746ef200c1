"""Marks that may end a sentence, in all scripts, and what stands around them."""

from __future__ import annotations

import re

OPENING = "\"'“‘’„‚«‹([{¿¡「『（*_"
CLOSING = "\"'”’“»›)\\]}」』”’）*_"
# Marks that end a sentence wherever they stand: Devanagari, Ethiopic, Armenian, Burmese, Khmer, Tibetan, Mongolian,
# Santali, Manipuri, Syriac, N'Ko, Chinese (of Unicode's property Sentence_Terminal, and the shad of Tibetan).
_ALWAYS = "।॥።፧፨։၊။។៕\u0f0d-\u0f11\u0f14᠃᠉᱾᱿꫰꫱꯫܀܁܂߹。！？｡"
_TIBETAN = "\u0f0d-\u0f11\u0f14"
# Marks that do so before white space: Urdu, Arabic, Greek (U+037E) and typographic ones.
_BEFORE_SPACE = "۔؟⸮\u037e‽⁇⁈⁉"
SENTENCE_MARKS = f".!?…:;{_ALWAYS}{_BEFORE_SPACE}՜՞"
"""All marks that may end a sentence, as the inside of a set of a regular expression."""
# After an Armenian letter a colon, and after a Greek one a semicolon, is typed for the mark that looks like it.
_TYPED_FOR_MARK = r"(?<=[\u0531-\u0587]):|(?<=[\u0370-\u03ff\u1f00-\u1fff]);"
# A full stop, exclamation or question mark before white space: marks, closing, opening, next (a word or a sign).
# Quantifiers are possessive, and a run of marks matches from its first one only: a long row would take quadratic time.
# The set stands first, because `re` looks for a set much faster than for what a lookbehind allows.
STOP = re.compile(
    rf"([.!?…](?<![.!?…]{{2}})[.!?…]*+)([{CLOSING}]*+)\s++([{re.escape(OPENING)}]*+)(\w++|[$#&@~+=<>§€£-])"
)
# An end without a doubt, in the scripts that have marks of their own.
CERTAIN = re.compile(
    rf"[{_ALWAYS}](?<![{_ALWAYS}]{{2}})[{_ALWAYS}.!?…]*+(?:\s[{_TIBETAN}]++)*+[{CLOSING}]*+\s*+(?=\S)"
    rf"|(?:[{_BEFORE_SPACE}](?<![{_BEFORE_SPACE}]{{2}})[{_BEFORE_SPACE}]*+|{_TYPED_FOR_MARK})[{CLOSING}.!?…]*+\s++(?=\S)"
)
HAS_CERTAIN = re.compile(rf"[{_ALWAYS}{_BEFORE_SPACE}\u0386-\u03ff\u1f00-\u1fff\u0531-\u0587]")
