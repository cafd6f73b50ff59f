"""Scraping is measured over real pods; its sizes are not judged here."""

from services.worlds.bench_picker_scrape import ScrapeOptions, run


def test_cpu_pages_and_the_age_beside_a_hung_pod_are_told() -> None:
    lines: list[str] = []
    options = ScrapeOptions(pods=3, page_lines=1_500, interval_ms=50, seconds=0.6)
    figures = {figure.name: figure for figure in run(options, lines.append)}
    assert {name: figure.reference for name, figure in figures.items() if figure.limited} == {
        "scrape.cpu.3": 0.25,
        "scrape.oldest_beside_hung": 100.0,
    }
    assert figures["scrape.pages.3"].value > 0
    assert figures["scrape.pages.3"].reference == 60
    # The pod that hangs is read no more, so its reading is as old as the span.
    assert figures["scrape.hung_pod_age"].value > 400
    assert figures["scrape.oldest_beside_hung"].value > 0
    assert len(lines) == 2
