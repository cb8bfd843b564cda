"""The masker against a corpus: what it finds of 245 kinds of secrets, and what it masks in 30,000 harmless lines."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from intercom.masking import Masker
from tests.masking import corpus

MASKER = Masker()
#: Of a hundred kinds so many are masked in every one of their spellings; of single texts more.
KINDS_MASKED, TEXTS_MASKED = 0.97, 0.995
FALSE_POSITIVES = 1 / 10_000


@pytest.mark.parametrize("seed", [7, 8])
def test_nearly_every_kind_is_masked_in_every_spelling(seed: int) -> None:
    texts = list(corpus.samples(seed))
    leaks = Counter(sample.kind for sample in texts if corpus.leaked(sample, MASKER.mask(sample.text).text))
    kinds = len(corpus.KINDS)
    found = len(texts) - leaks.total()
    print(f"{kinds - len(leaks)} of {kinds} kinds, {found} of {len(texts)} texts masked; not: {dict(leaks)}")
    assert kinds >= 120
    assert len({kind.name for kind in corpus.KINDS}) == kinds
    assert kinds - len(leaks) >= KINDS_MASKED * kinds, leaks
    assert len(texts) - leaks.total() >= TEXTS_MASKED * len(texts), leaks


def test_harmless_lines_are_left_alone_and_code_is_fast() -> None:
    lines = corpus.harmless()
    MASKER.mask("password = 'x'")
    text = "\n".join(lines)
    started = time.process_time()
    masked = MASKER.mask(text).text.split("\n")
    seconds = time.process_time() - started
    changed = [(before, after) for before, after in zip(lines, masked, strict=True) if before != after]
    alone = [line for line in lines[::10] if MASKER.mask(line).kinds]
    print(f"{len(changed)} of {len(lines)} lines masked; {len(text) / 1e6 / seconds:.1f} MB of code in a second")
    assert len(lines) >= 30_000
    assert len(changed) <= FALSE_POSITIVES * len(lines), changed
    assert not alone
    # A tenth of the speed that an idle machine has: the suite runs beside other things.
    assert len(text) / seconds > 150_000


def test_a_corpus_text_without_masking_counts_as_a_leak() -> None:
    """The measure itself: every text leaks as it stands, and none that shows nothing of its secret."""
    for sample in corpus.samples():
        assert corpus.leaked(sample, sample.text), sample
        assert not corpus.leaked(sample, "[masked]")


def test_what_is_masked_stays_and_lines_stay_where_they_are() -> None:
    for sample in corpus.samples():
        masked = MASKER.mask(sample.text).text
        assert MASKER.mask(masked).text == masked
        before, after = sample.text.split("\n"), masked.split("\n")
        assert len(before) == len(after)
        assert all(new[:1] in (old[:1], "[") for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize(
    "marker", ["gitleaks:allow", "pragma: allowlist secret", "trufflehog:ignore", "kingfisher:ignore", "nosec", "noqa"]
)
def test_a_marker_that_tells_scanners_to_look_away_is_ignored(marker: str) -> None:
    token = f"ghp_{'a1B2c3D4e5F6' * 3}"
    for text in (f'password = "tr0ub4dor-and-3"  # {marker}', f"x {token} // {marker}", f"# {marker}\nTOKEN={token}"):
        masked = MASKER.mask(text)
        assert masked.kinds
        assert marker in masked.text
        assert token not in masked.text
        assert "tr0ub4dor" not in masked.text
