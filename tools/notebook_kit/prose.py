"""Prose without its code, formulas and links, and the rule that no number in it goes unlabelled.

A number with a unit of time, bytes, FLOP, money, a rate or × is a claim: it is written as an evidence link. Exempt are inline
code and formulas, a card named by its memory ("a 24 GB card"), and a paragraph of teaching arithmetic that says so:
`<!-- arithmetic -->` inside the paragraph, or alone before the paragraph, list or table it is for.
"""

from __future__ import annotations

import re

from notebook_kit.ledger import LINK as EVIDENCE_LINK

ARITHMETIC = re.compile(r"<!--\s*arithmetic\s*-->")
GAP = "§"  # what stands where code, a formula or a labelled number was

FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)", re.DOTALL)
MATH = re.compile(r"\$\$.*?\$\$|(?<![\\$])\$(?![\s$])(?:[^$\n]|\n(?!\s*\n))*?(?<![\s\\])\$(?!\d)", re.DOTALL)
TARGET = re.compile(r"\]\([^)]*\)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
TAG = re.compile(r"</?[a-z][^>]*>", re.IGNORECASE)

NUMBER = r"(?<![\w.,/])\d[\d,.\u2009\u202f]*(?:e[-+]?\d+)?"
SPACE = r"[ \u00a0\u2009\u202f-]"
JOINED = (  # may touch the number: 16GB, 2ms, 5x
    r"(?:ns|µs|μs|us|ms|min|nanoseconds?|microseconds?|milliseconds?|seconds?|minutes?|hours?|days?|bytes?|[kKMGTP]i?B"
    r"|[kMGTPE]?FLOPS?s?|tok|USD|EUR|dollars?|euros?|cents?|(?<=\d)x)(?![\w])"
)
# 8B is a model, 8 B are bytes
APART = r"(?:s|h|B(?!\s+(?:active|parameters?|params|weights?|models?)\b)|[\w-]+/s|\w+ (?:per|a) second)(?![\w])"
TIMES = r"×(?!\s*[\d(" + GAP + "])"  # 5× is a ratio, 64 × 2 a product
CLAIM = re.compile(rf"{NUMBER}(?:{SPACE}?{JOINED}|{SPACE}{APART}|\s?{TIMES})(?:/\w+)?|[$€£]\s?\d[\d,.]*")
PRODUCT = re.compile(r"\d+[ \u00a0-]?Gi?B[ \u00a0-](?:cards?|GPUs?|graphics cards?|RTX|GeForce|[AHBLV]\d{2,3}|MI\d{3})\b")


def bare_numbers(markdown: str) -> list[str]:
    """The unlabelled claims of one markdown cell, as they stand there."""
    found = []
    exempt = False
    for block in re.split(r"\n[ \t]*\n", without_code(markdown)):
        marked = bool(ARITHMETIC.search(block))
        alone = marked and not ARITHMETIC.sub("", block).strip()
        if not (marked or exempt):
            found += [match[0].strip() for match in CLAIM.finditer(_claims_only(block))]
        exempt = alone
    return found


def without_code(markdown: str) -> str:
    """The text with fenced and inline code and formulas replaced by a mark; line breaks inside them are lost."""
    for pattern in (FENCE, CODE, MATH):
        markdown = pattern.sub(GAP, markdown)
    return markdown


def _claims_only(block: str) -> str:
    block = EVIDENCE_LINK.sub(GAP, block)
    for pattern, instead in ((TARGET, "]"), (COMMENT, ""), (TAG, " "), (PRODUCT, GAP)):
        block = pattern.sub(instead, block)
    return block
