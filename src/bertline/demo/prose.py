"""Extraction of prose from docstrings: tables, signatures, code and markup are removed.

Supported styles are reStructuredText with Sphinx roles, fields and directives, numpydoc sections and Google sections.
Descriptions of parameters are prose and are kept; lines that name a parameter and its type are removed.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

_ADORNMENT = re.compile(r"([=\-~^\"'*#+`_.:])\1{2,}$")
_TABLE = re.compile(r"([=\-]{2,}( +[=\-]{2,})+|\+[-=+]{3,}|\|.*\|)$")
_DIRECTIVE = re.compile(r"\.\. +(?:\|[^|]*\| +)?([\w:+-]+?)::\s*(.*)$")
_EXPLICIT = re.compile(r"(\.\.( |$)|__ )")
_FIELD = re.compile(r":(\w+)(?: +[^:`]+)?:(?:\s+(.*))?$")
_BULLET = re.compile(r"([-*+•–]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})[.)]|\[\d+\])(?: +|$)")
_GOOGLE_HEADING = re.compile(r"([A-Z][A-Za-z]*(?: [A-Za-z]+){0,2}):{1,2}$")
_GOOGLE_ITEM = re.compile(
    r"(?:[-*] +)?`{0,2}\*{0,2}[\w.\[\]]+(?:[,/] *\*{0,2}[\w.]+)*`{0,2} *(?:\([^)]*\)+)?\s*: +(.*)$"
)
_TYPED_NAME = re.compile(r"`{0,2}\*{0,2}[\w.]+(?:(?:, *| or )\*{0,2}[\w.]+)*`{0,2} +:(?: .*)?$")
_CODE = re.compile(r"(>>>|\.\.\. |\.\.\.$|\$ |% |In \[\d|Out\[\d|@\w|(?:from [\w.]+ )?import [\w.]+(?:,| |$)|#)")
_SIGNATURE = re.compile(r"[\w.]+\([^()]*(?:\([^()]*\)[^()]*)*\)(?: *-> *.+)?[.:]?$")
_ASSIGNMENT = re.compile(r"[\w.\[\]]+(?:, [\w.\[\]]+)* = \S")

_PROSE_DIRECTIVES = {
    "note", "notes", "warning", "tip", "hint", "important", "caution", "danger", "attention", "admonition",
    "versionadded", "versionchanged", "deprecated", "topic", "rubric",
}  # fmt: skip
_ITEM_SECTIONS = {
    "args", "arguments", "parameters", "params", "other parameters", "keyword args", "keyword arguments", "returns",
    "return", "yields", "raises", "warns", "attributes", "methods", "inputs", "input", "outputs", "output", "receives",
    "optional arguments", "kwargs", "properties", "variables", "shape",
}  # fmt: skip
_OTHER_SECTIONS = {
    "example", "examples", "note", "notes", "warning", "warnings", "usage", "details", "description", "see also",
    "references", "reference", "todo", "summary", "explanation", "implementation notes", "overview", "tips", "tip",
}  # fmt: skip
_DROPPED_SECTIONS = {"see also": "see_also", "references": "reference", "reference": "reference"}
_TYPE_FIELDS = {"type", "rtype", "vartype", "mod", "py"}

_ROLE = re.compile(r"(?::[\w+-]+)?:(?P<role>[\w+-]+):`(?P<body>[^`]*)`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}")
_LITERAL = re.compile(r"(`{1,2})([^`]+)\1_{0,2}")
_STRONG = re.compile(r"(?<![\w*])(\*{1,2})(\S(?:[^*]*[^\s*])?)\1(?![\w*])")
_FOOTNOTE = re.compile(r"\s*\[[\w#*]{1,6}\]_")
_LATEX = re.compile(r"\\[A-Za-z]+")
_SPACE = re.compile(r"\s+")
_PUNCTUATION = ".,;:!?()[]{}\"'“”‘’"
_INSIDE_WORDS = str.maketrans("", "", "-'’/")
_MIN_WORDS = 3
_MIN_LETTER_FRACTION = 0.72  # of letters and spaces; code, formulas and tables have a lower fraction
_MAX_LATEX_COMMANDS = 2


@dataclass(frozen=True, slots=True)
class Prose:
    """The prose of a docstring."""

    paragraphs: tuple[str, ...]
    """Paragraphs in reading order, each on one line, without markup."""
    dropped: dict[str, int]
    """Number of removed blocks by reason."""


def prose_paragraphs(text: str) -> Prose:
    r"""Extract the prose paragraphs of a docstring, as `inspect.cleandoc` leaves it.

    >>> found = prose_paragraphs("Scale `x` by *two*.\n\nArgs:\n    x (int): The number to scale.\n\n>>> f(1)\n2")
    >>> found.paragraphs
    ('Scale x by two.', 'The number to scale.')
    >>> found.dropped
    {'doctest': 1, 'heading': 1}
    """
    reader = _Reader()
    lines = text.expandtabs().split("\n")
    for index, line in enumerate(lines):
        reader.read(line, lines[index + 1] if index + 1 < len(lines) else "")
    reader.flush()
    return Prose(tuple(reader.paragraphs), dict(sorted(reader.dropped.items())))


@dataclass
class _Reader:
    """Line-by-line reader that collects prose paragraphs and skips other blocks."""

    paragraphs: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    _lines: list[str] = field(default_factory=list)
    _indent: int = 0
    _hanging: bool = False
    _skip_deeper_than: int | None = None
    _skip_to_blank: bool = False
    _skip_section: bool = False
    _underline_next: bool = False
    _items: bool = False
    _items_indent: int = 0

    def read(self, line: str, following: str) -> None:
        content = line.strip()
        indent = len(line) - len(line.lstrip())
        if not content:
            self._skip_to_blank = False
            self.flush()
        elif self._underline_next:
            self._underline_next = False
        elif self._is_skipped(indent, content, following) or self._starts_skip(content, indent, following):
            return
        else:
            self._read_prose(content, indent, following)

    def flush(self) -> None:
        """End the current paragraph: keep it if it is prose, otherwise count the reason."""
        if not self._lines:
            return
        text = " ".join(self._lines)
        self._lines = []
        if text.endswith("::"):
            self._skip_deeper_than = self._indent
            self.dropped["code"] += 1
            text = text[:-1]
        plain = plain_text(text)
        reason = _not_prose(plain, text)
        if reason is None:
            self.paragraphs.append(plain)
        else:
            self.dropped[reason] += 1

    def _is_skipped(self, indent: int, content: str, following: str) -> bool:
        if self._skip_deeper_than is not None:
            if indent > self._skip_deeper_than:
                return True
            self._skip_deeper_than = None
        if self._skip_section and not self._is_heading(content, following):
            return True
        self._skip_section = False
        return self._skip_to_blank

    def _starts_skip(self, content: str, indent: int, following: str) -> bool:
        """Handle blocks that the first line identifies as not prose: headings, code, tables, directives.

        Return whether the line starts such a block.
        """
        if self._is_heading(content, following):
            self._heading(content, indent, underlined=_is_underline(content, following))
        elif content.startswith(">>>"):
            self._drop_to_blank("doctest")
        elif _TABLE.match(content):
            self._drop_to_blank("table")
        elif _ADORNMENT.match(content):
            self.flush()
        elif directive := _DIRECTIVE.match(content):
            self.flush()
            if directive[1] not in _PROSE_DIRECTIVES:
                self._drop_deeper("directive", indent)
            elif not directive[1].startswith("version") and directive[1] != "deprecated" and directive[2]:
                self._begin(directive[2], indent, hanging=True)
        elif _EXPLICIT.match(content):
            self._drop_deeper("reference", indent)
        elif not self._lines and _CODE.match(content):
            self._drop_to_blank("code")
        else:
            return False
        return True

    def _read_prose(self, content: str, indent: int, following: str) -> None:
        if marked := _FIELD.match(content):
            self.flush()
            if marked[1] in _TYPE_FIELDS:
                self._drop_deeper("parameter_header", indent)
            elif marked[2]:
                self._begin(marked[2], indent, hanging=True)
        elif self._is_item_header(content, indent, following):
            self.flush()
            self.dropped["parameter_header"] += 1
        elif self._items and (item := _GOOGLE_ITEM.match(content)):
            self.flush()
            self._begin(item[1], indent, hanging=True)
        elif (bullet := _BULLET.match(content)) and (not self._lines or indent <= self._indent or content[0] in "-*+•"):
            self.flush()
            text = content[bullet.end() :]
            if _TYPED_NAME.match(text) and _is_deeper(following, indent):
                self.dropped["parameter_header"] += 1
            elif text:
                self._begin(text, indent, hanging=True)
        elif self._continues(content, indent):
            self._lines.append(content)
        else:
            self.flush()
            self._begin(content, indent, hanging=False)

    def _is_item_header(self, content: str, indent: int, following: str) -> bool:
        """Return whether a line only names a parameter, with its description on the more indented lines below."""
        if not _is_deeper(following, indent):
            return False
        if _TYPED_NAME.match(content):
            return not self._lines or indent <= self._indent or self._items
        return self._items and indent <= self._items_indent and len(content.split()) <= 6

    def _continues(self, content: str, indent: int) -> bool:
        """Return whether a line continues the paragraph: same indentation, or a hanging indent."""
        if not self._lines:
            return False
        if indent == self._indent:
            return not self._hanging or (content[0].islower() and self._lines[-1][-1] not in ".:;")
        if indent > self._indent and len(self._lines) == 1 and not _is_term(self._lines[0]):
            self._hanging = True
        return self._hanging and indent > self._indent

    def _begin(self, content: str, indent: int, *, hanging: bool) -> None:
        self._lines, self._indent, self._hanging = [content], indent, hanging

    def _is_heading(self, content: str, following: str) -> bool:
        if _is_underline(content, following):
            return True
        match = _GOOGLE_HEADING.match(content)
        return match is not None and match[1].lower() in _ITEM_SECTIONS | _OTHER_SECTIONS

    def _heading(self, content: str, indent: int, *, underlined: bool) -> None:
        self.flush()
        self.dropped["heading"] += 1
        self._underline_next = underlined
        title = content.rstrip(":").lower()
        self._items = title in _ITEM_SECTIONS
        self._items_indent = indent
        if content.endswith("::"):
            self._drop_deeper("code", indent)
        elif title in _DROPPED_SECTIONS:
            self.dropped[_DROPPED_SECTIONS[title]] += 1
            if underlined:
                self._skip_section = True
            else:
                self._skip_deeper_than = indent

    def _drop_to_blank(self, reason: str) -> None:
        self.flush()
        self.dropped[reason] += 1
        self._skip_to_blank = True

    def _drop_deeper(self, reason: str, indent: int) -> None:
        self.flush()
        self.dropped[reason] += 1
        self._skip_deeper_than = indent


def plain_text(text: str) -> str:
    """Return the plain text of a paragraph: roles, links, emphasis and literals are replaced by the text they show.

    Footnote marks are removed.

    >>> plain_text("See :class:`~torch.nn.Linear` and ``x`` in the `guide <https://example.org>`_ [1]_.")
    'See Linear and x in the guide.'
    """
    if "`" in text:
        text = _ROLE.sub(_role_text, text)
        text = _LINK.sub(r"\1", text)
        text = _LITERAL.sub(lambda match: match[2].lstrip("~!.") or match[2], text)
    if "*" in text:
        text = _STRONG.sub(r"\2", text)
    if "]_" in text:
        text = _FOOTNOTE.sub("", text)
    return _SPACE.sub(" ", text).strip()


def _role_text(match: re.Match[str]) -> str:
    body = match["body"]
    if match["role"] == "math":
        return body
    if "<" in body:
        body = body.split("<")[0].strip() or body.strip("<>")
    return body.rsplit(".", 1)[-1] if body.startswith("~") else body.lstrip("!.")


def _not_prose(plain: str, marked: str) -> str | None:
    """Return the reason why a paragraph is not prose, or None if it is prose."""
    if _SIGNATURE.match(plain):
        return "signature"
    if len(_LATEX.findall(plain)) > _MAX_LATEX_COMMANDS:
        return "formula"
    if _ASSIGNMENT.match(plain) or marked.startswith(("http", "www.")) or plain.count(" # ") > 1:
        return "code"
    if _TYPED_NAME.match(plain) and plain[-1] != ".":
        return "parameter_header"
    # Names such as num_workers or torch.nn do not count as words.
    words = sum(word.strip(_PUNCTUATION).translate(_INSIDE_WORDS).isalpha() for word in plain.split())
    if words < _MIN_WORDS:
        return "too_few_words"
    if _num_letters_and_spaces(plain) < _MIN_LETTER_FRACTION * len(plain):
        return "not_prose"
    return None


def _num_letters_and_spaces(text: str) -> int:
    """Return the number of characters that are letters or spaces.

    >>> _num_letters_and_spaces("f(x) = 2"), _num_letters_and_spaces("größer 2")
    (4, 7)
    """
    return sum(character.isalpha() or character == " " for character in text)


def _is_underline(content: str, following: str) -> bool:
    mark = following.strip()
    return (
        _ADORNMENT.match(mark) is not None
        and not _ADORNMENT.match(content)
        and len(mark) >= len(content) - 3
        and len(content) < 100
        and not content.startswith((">>>", "|", "+"))
    )


def _is_deeper(line: str, indent: int) -> bool:
    return bool(line.strip()) and len(line) - len(line.lstrip()) > indent


def _is_term(content: str) -> bool:
    """Return whether a line above a more indented one is a term with its definition, not a wrapped sentence."""
    return _TYPED_NAME.match(content) is not None or (len(content.split()) <= 6 and content[-1] != ",")
