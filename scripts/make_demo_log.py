"""Write the demo's access log: five days of a small shop, in the combined format.

The same arguments give the same bytes on every machine and Python version: only `Random.random()`, whose
sequence is guaranteed, is drawn from, and nothing is computed in floating point but its scaling. The
defaults reproduce the shipped file. Addresses are from the ranges reserved for documentation.

What is in it: a daily rhythm, shoppers, API clients, crawlers, scanners for holes, a health check, one hour
of server errors (5 March, 14:00 UTC), and a few lines that a crash, a full disk or a stray program left.
"""

import argparse
import random  # noqa: TID251 - a seeded generator is the point of this script
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path

Draw = Callable[[], float]

DEFAULT_LINES = 3000
DEFAULT_SEED = 20250303
DEFAULT_OUT = Path(__file__).resolve().parents[1] / "reach_worker" / "demo" / "data" / "access.log"

START = datetime(2025, 3, 3, tzinfo=UTC)
HOURS = 5 * 24
OUTAGE = 2 * 24 + 14  # hours after START
OUTAGE_ERRORS = 0.65
MALFORMED = 0.006
FIXED_SIZES = {
    301: "162",
    403: "146",
    404: "1153",
    410: "148",
    500: "170",
    502: "150",
    503: "190",
    504: "160",
}
RHYTHM = (3, 2, 2, 1, 1, 2, 4, 7, 10, 12, 13, 13, 12, 12, 13, 13, 12, 11, 11, 12, 12, 10, 7, 5)  # by hour


@dataclass(frozen=True)
class Page:
    """One kind of request; `{}` in the path becomes a number. `static` ones outlive the outage."""

    weight: int
    method: str
    path: str
    statuses: tuple[tuple[int, int], ...]  # status, weight
    size: tuple[int, int]  # bytes, from and to
    static: bool = False


@dataclass(frozen=True)
class Visitors:
    """A group of clients that behave alike. Every address keeps its agent string."""

    weight: int
    addresses: tuple[str, ...]
    agents: tuple[str, ...]
    pages: tuple[Page, ...]
    referers: tuple[str, ...] = ("-",)
    users: tuple[str, ...] = ("-",)


_FINE = ((200, 97), (304, 3))
_CACHED = ((200, 70), (304, 30))

SHOP = (
    Page(14, "GET", "/", _FINE, (8200, 9800)),
    Page(16, "GET", "/products/{}", ((200, 93), (404, 5), (301, 2)), (5200, 14500)),
    Page(9, "GET", "/search?q=lamp&page={}", _FINE, (3900, 11800)),
    Page(6, "GET", "/cart", _FINE, (2100, 5200)),
    Page(5, "POST", "/cart/items", ((201, 92), (409, 5), (422, 3)), (180, 420)),
    Page(4, "POST", "/login", ((302, 78), (401, 20), (429, 2)), (0, 900)),
    Page(3, "POST", "/checkout", ((303, 90), (402, 8), (500, 2)), (0, 700)),
    Page(3, "GET", "/account/orders", ((200, 88), (302, 12)), (2600, 7300)),
    Page(2, "GET", "/old-catalogue/{}", ((301, 60), (410, 40)), (0, 320)),
    Page(2, "GET", "/search?q=%E5%8F%B0%E7%81%AF", _FINE, (3900, 8800)),
    Page(13, "GET", "/static/app.js", _CACHED, (88412, 88412), static=True),
    Page(12, "GET", "/static/site.css", _CACHED, (21744, 21744), static=True),
    Page(12, "GET", "/static/img/{}.webp", _CACHED, (12000, 96000), static=True),
    Page(3, "GET", "/favicon.ico", ((200, 55), (304, 45)), (4286, 4286), static=True),
    Page(1, "GET", "/downloads/manual.pdf", ((200, 60), (206, 40)), (310000, 890000), static=True),
)
API = (
    Page(10, "GET", "/api/v1/stock?sku={}", ((200, 95), (404, 4), (504, 1)), (140, 620)),
    Page(5, "POST", "/api/v1/orders", ((201, 91), (400, 5), (409, 2), (429, 2)), (220, 940)),
    Page(3, "PUT", "/api/v1/orders/{}", ((200, 92), (404, 5), (412, 3)), (200, 780)),
    Page(1, "DELETE", "/api/v1/orders/{}", ((204, 85), (404, 15)), (0, 0)),
    Page(1, "PATCH", "/api/v1/customers/{}", ((200, 90), (403, 10)), (180, 520)),
)
CRAWL = (
    Page(2, "GET", "/robots.txt", _FINE, (312, 312), static=True),
    Page(2, "GET", "/sitemap.xml", _FINE, (18211, 18211), static=True),
    Page(12, "GET", "/products/{}", ((200, 86), (404, 10), (301, 4)), (5200, 14500)),
    Page(3, "HEAD", "/", ((200, 100),), (0, 0)),
)
PROBE = (
    Page(4, "GET", "/wp-login.php", ((404, 100),), (153, 153), static=True),
    Page(3, "GET", "/.env", ((403, 30), (404, 70)), (153, 153), static=True),
    Page(2, "POST", "/xmlrpc.php", ((404, 60), (405, 40)), (153, 153), static=True),
    Page(2, "GET", "/phpmyadmin/index.php?lang=en", ((404, 100),), (153, 153), static=True),
    Page(1, "-", r"\x16\x03\x01\x02\x00\x01", ((400, 100),), (157, 157), static=True),
)
HEALTH = (Page(1, "GET", "/healthz", ((200, 100),), (2, 2)),)
ADMIN = (
    Page(3, "GET", "/admin/orders", ((200, 95), (403, 5)), (6100, 22000)),
    Page(1, "POST", "/admin/products/{}", ((303, 95), (500, 5)), (0, 300)),
)

CHROMIUM = "AppleWebKit/537.36 (KHTML, like Gecko)"
WEBKIT = "AppleWebKit/605.1.15 (KHTML, like Gecko)"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:135.0) Gecko/20100101 Firefox/135.0"

VISITORS = (
    Visitors(
        weight=70,
        addresses=(*(f"198.51.100.{n}" for n in range(7, 147, 2)), "2001:db8:4f::21", "2001:db8:91::a2"),
        agents=(
            f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {CHROMIUM} Chrome/133.0.0.0 Safari/537.36",
            f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) {WEBKIT} Version/18.3 Safari/605.1.15",
            FIREFOX,
            f"Mozilla/5.0 (iPhone; CPU iPhone OS 18_3 like Mac OS X) {WEBKIT} Version/18.3 Safari/604.1",
            f"Mozilla/5.0 (Linux; Android 14) {CHROMIUM} Chrome/132.0.0.0 Mobile Safari/537.36",
            r"ShopApp/3.2 (\"tablet\"; de_DE)",
        ),
        pages=SHOP,
        referers=(
            "-",
            "https://shop.example/",
            "https://shop.example/search?q=lamp",
            "https://search.example/",
        ),
    ),
    Visitors(
        weight=13,
        addresses=("203.0.113.10", "203.0.113.11", "203.0.113.12"),
        agents=("python-httpx/0.28.1", "okhttp/4.12.0", "Go-http-client/1.1"),
        pages=API,
        users=("stock-sync", "partner-7", "partner-9"),
    ),
    Visitors(
        weight=8,
        addresses=("192.0.2.17", "192.0.2.18", "192.0.2.64", "192.0.2.80"),
        agents=(
            "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
            "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
            "Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)",
            "Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)",
        ),
        pages=CRAWL,
    ),
    Visitors(
        weight=3,
        addresses=("192.0.2.201", "192.0.2.202", "203.0.113.240"),
        agents=("-", "Mozilla/5.0 zgrab/0.x", "curl/7.88.1"),
        pages=PROBE,
    ),
    Visitors(weight=4, addresses=("203.0.113.2",), agents=("UptimeCheck/1.4",), pages=HEALTH),
    Visitors(
        weight=2,
        addresses=("198.51.100.250", "198.51.100.251"),
        agents=(FIREFOX,),
        pages=ADMIN,
        referers=("https://shop.example/admin/",),
        users=("alice", "bob"),
    ),
)


def log_text(lines: int = DEFAULT_LINES, seed: int = DEFAULT_SEED) -> str:
    """The whole log, `lines` lines in order of time."""
    draw: Draw = random.Random(seed).random  # noqa: S311 - a demo's log, no secret
    seconds = sorted(_second(draw) for _ in range(lines))
    return "".join(f"{_line(draw, START + timedelta(seconds=second))}\n" for second in seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the log to `--out`."""
    parser = argparse.ArgumentParser(description="Write the demo's access log.")
    parser.add_argument("--lines", type=int, default=DEFAULT_LINES, help="how many lines (%(default)s)")
    parser.add_argument(
        "--seed", type=int, default=DEFAULT_SEED, help="another seed, another log (%(default)s)"
    )
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="the file to write (the shipped one)")
    chosen = parser.parse_args(arguments)
    chosen.out.write_bytes(log_text(chosen.lines, chosen.seed).encode())


def _second(draw: Draw) -> int:
    """Seconds after START, following the rhythm of the day; retries make the outage a busy hour."""
    weights = [RHYTHM[hour % 24] * (3 if hour == OUTAGE else 1) for hour in range(HOURS)]
    return _index(draw, weights) * 3600 + int(draw() * 3600)


def _line(draw: Draw, moment: datetime) -> str:
    visitors = VISITORS[_index(draw, [group.weight for group in VISITORS])]
    who = _near_first(draw, len(visitors.addresses))
    page = visitors.pages[_index(draw, [page.weight for page in visitors.pages])]
    path = page.path.replace("{}", str(1 + _near_first(draw, 60)))
    status = _status(draw, page, moment)
    request = path if page.method == "-" else f"{page.method} {path} HTTP/1.1"
    user = visitors.users[who % len(visitors.users)]
    referer = visitors.referers[int(draw() * len(visitors.referers))]
    agent = visitors.agents[who % len(visitors.agents)]
    stamp = f"{moment:%d}/Mar/{moment:%Y:%H:%M:%S} +0000"
    size = _size(draw, page, status)
    line = f'{visitors.addresses[who]} - {user} [{stamp}] "{request}" {status} {size} "{referer}" "{agent}"'
    return _spoilt(draw, line, moment) if draw() < MALFORMED else line


def _status(draw: Draw, page: Page, moment: datetime) -> int:
    in_outage = (moment - START) // timedelta(hours=1) == OUTAGE
    if in_outage and not page.static and draw() < OUTAGE_ERRORS:
        return (502, 503, 504, 500)[_index(draw, (5, 4, 2, 1))]
    return page.statuses[_index(draw, [weight for _, weight in page.statuses])][0]


def _size(draw: Draw, page: Page, status: int) -> str:
    """Bytes; `-` for an answer without a body. Errors and redirects have fixed small pages."""
    if status in {204, 304} or page.method == "HEAD":
        return "-"
    if status in FIXED_SIZES:
        return FIXED_SIZES[status]
    low, high = page.size
    return str(low + int(draw() * (high - low + 1)))


def _spoilt(draw: Draw, line: str, moment: datetime) -> str:
    """A line as accidents leave them: cut off, without its time, run into another program's output."""
    broken = (
        line[: 20 + int(draw() * 40)],
        line.replace("/Mar/", "/Mrz/"),
        line.replace(" - - [", " [").replace('" "', '"'),
        f"{moment:%Y/%m/%d %H:%M:%S} [error] 1142#0: *8812 upstream timed out (110: Connection timed out)",
        r"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    )
    return broken[int(draw() * len(broken))]


def _index(draw: Draw, weights: Sequence[int]) -> int:
    """A place in the list, drawn by weight."""
    sums = list(accumulate(weights))
    return bisect(sums, int(draw() * sums[-1]))


def _near_first(draw: Draw, n: int) -> int:
    """A number below n, small ones far more often."""
    return int(draw() * draw() * n)


if __name__ == "__main__":
    main()
