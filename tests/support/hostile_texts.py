"""Texts that a user may have as a label, a name or a passage, and that something would obey instead of showing it."""

HOSTILE_TEXTS = {
    "formula": "$a$b$ costs $_{5}$",
    "unfinished formula": r"$\frac{1$ and $\notacommand$",
    "script": '</script><script>alert("x")</script> & <b>bold',
    "attribute": '" onload="alert(1)" \'x',
    "table": "a|b\\|c\\",
    "code": "``` `a` ```",
    "lines": "one\r\ntwo\nthree\u2028four",
    "right to left": "\u202eabc\u202c \u200f\u05e9\u05dc\u05d5\u05dd\u200e",
    "control": "a\x00b\x07c\x7f\x9b\r",
    "terminal": "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "template": "{{ 7 * 7 }} {% raw %} ${jndi} %(x)s {0} $title",
    "markdown": "# - *bold* _em_ ~~no~~ [a](javascript:alert(1)) ![b](c)",
    "number sign": "# one",
    "dash": "- one",
    "underscore": "_hidden",
    "long": "w" * 400,
    "long words": "word " * 200,
    "emoji": "\U0001f600 \U0001f1ea\U0001f1fa e\u0301 \u6f22\u5b57",
    "half a pair": "\ud83d",
    "spaces": "  ",
}
