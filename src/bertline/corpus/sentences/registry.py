"""The kinds of sentence splitting: a new one is a file of `corpus/sentences` and a line here."""

from __future__ import annotations

from bertline.corpus.sentences.learned import LearnedConfig
from bertline.corpus.sentences.lines import LinesConfig
from bertline.corpus.sentences.regex import RegexConfig
from bertline.corpus.sentences.rules import RulesConfig

SentencesConfig = LearnedConfig | RulesConfig | LinesConfig | RegexConfig
