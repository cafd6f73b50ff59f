"""Signals: nothing known means nothing said, and no two requests share what they hold."""

from services.core.scheduling.signals import NO_SIGNALS, Signals


def test_nothing_is_known_by_default() -> None:
    assert Signals() == NO_SIGNALS
    assert (NO_SIGNALS.matched, NO_SIGNALS.headers) == ({}, {})
    assert (NO_SIGNALS.adapter, NO_SIGNALS.session, NO_SIGNALS.prompt_tokens) == (None, None, None)


def test_each_request_has_mappings_of_its_own() -> None:
    assert Signals().matched is not Signals().matched
