"""Immutable values of the standard library as state, arguments and results: decimals, fractions,
dates, paths, patterns."""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import re
import uuid
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from .registry import Seen, batch, case


@case
def a_decimal_of_the_caller(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(rate=Decimal("1.5"))
    step = wrap(lambda x: x * float(s.rate + 1))
    for n in range(8):
        if n in (2, 3, 5):
            s.rate = Decimal(n) / 4
        yield step(batch(lib, n))


@case
def decimals_that_are_equal_but_others(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(rate=Decimal("1.0"))
    step = wrap(lambda x: x * len(str(s.rate)))
    for n in range(9):
        s.rate = (Decimal("1.0"), Decimal("1.00"), Decimal(1))[n % 3]
        yield step(batch(lib, n))


@case
def the_context_around_a_decimal(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(rate=Decimal(1))
    step = wrap(lambda x: x * float(s.rate / 3 * 1000))
    for n in range(8):
        with decimal.localcontext() as context:
            context.prec = 2 if n in (3, 4, 6) else 28
            yield step(batch(lib, n))


@case
def a_decimal_that_the_step_alternates(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(rate=Decimal("0.5"))

    def step(x):
        s.rate = Decimal("2.50") if s.rate < 1 else Decimal("0.5")
        return x * float(s.rate)

    step = wrap(step)
    for n in range(12):
        yield step(batch(lib, n)), str(s.rate)
        if n == 8:
            s.rate = Decimal("0.50")


@case
def a_fraction_that_the_step_halves(lib: Any, wrap: Any) -> Seen:
    s = {"f": Fraction(1, 2)}

    def step(x):
        s["f"] = s["f"] / 2 if s["f"] > Fraction(1, 8) else Fraction(1, 2)
        return x * float(s["f"]), s["f"]

    step = wrap(step)
    for n in range(14):
        yield step(batch(lib, n)), str(s["f"])


@case
def a_date_that_goes_on(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(day=datetime.date(2026, 1, 30), step=datetime.timedelta(days=1))

    def step(x):
        s.day = s.day + s.step
        return x * s.day.day

    step = wrap(step)
    for n in range(12):
        yield step(batch(lib, n)), str(s.day)
        if n % 3 == 2:
            s.day = datetime.date(2026, 1, 30)


@case
def a_time_with_a_zone(lib: Any, wrap: Any) -> Seen:
    zone = datetime.timezone(datetime.timedelta(hours=1))
    s = SimpleNamespace(at=datetime.datetime(2026, 1, 1, 12, tzinfo=zone))

    def step(x):
        return x * s.at.hour, s.at

    step = wrap(step)
    for n in range(8):
        if n in (3, 5):  # the same moment elsewhere
            s.at = s.at.astimezone(datetime.UTC if n == 3 else zone)
        found, at = step(batch(lib, n))
        yield found, str(at)


@case
def a_zone_of_the_users(lib: Any, wrap: Any) -> Seen:
    class Zone(datetime.tzinfo):
        hours = 0

        def utcoffset(self, at):
            return datetime.timedelta(hours=self.hours)

        def dst(self, at):
            return None

        def tzname(self, at):
            return "own"

    zone = Zone()
    s = SimpleNamespace(at=datetime.datetime(2026, 1, 1, 12, tzinfo=zone))
    step = wrap(lambda x: x * (s.at.utcoffset().seconds // 3600 + 1))
    for n in range(8):
        zone.hours = (0, 0, 1, 1, 3, 3, 0, 1)[n]
        yield step(batch(lib, n))


@case
def a_pattern_that_is_replaced(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(pattern=re.compile("a+"))

    def step(x, text):
        found = s.pattern.findall(text)
        s.pattern = re.compile("b" if s.pattern.pattern == "a+" else "a+")
        return x * len(found)

    step = wrap(step)
    for n in range(10):
        yield step(batch(lib, n), "aabba"), s.pattern.pattern
        if n == 6:
            s.pattern = re.compile("A+", re.IGNORECASE)


@case
def values_as_arguments(lib: Any, wrap: Any) -> Seen:
    def step(x, rate, span, path):
        return x * float(rate) * span.days * len(path.parts), path.name

    step = wrap(step)
    for n in range(8):
        rate = Decimal(("1.5", "1.50", "2")[n % 3])
        yield step(batch(lib, n), rate, datetime.timedelta(days=n % 2 + 1),
                   pathlib.PurePosixPath("a/b" if n % 2 else "c"))  # fmt: skip


@case
def values_in_results_and_keys(lib: Any, wrap: Any) -> Seen:
    table = {datetime.date(2026, 1, 1): 1.0, uuid.UUID(int=5): 2.0}

    def step(x, day):
        table[day] = 3.0
        return {day: x * sum(table.values()), "path": pathlib.PurePosixPath("a") / "b"}

    step = wrap(step)
    for n in range(8):
        found = step(batch(lib, n), datetime.date(2026, 1, 1 + n % 2))
        yield [(str(key), value) for key, value in found.items()], len(table)


@case
def a_decimal_of_a_class_of_the_users(lib: Any, wrap: Any) -> Seen:
    class Money(Decimal):
        unit = 1.0

    money = Money("2.5")
    s = SimpleNamespace(held=money)
    step = wrap(lambda x: x * float(s.held) * s.held.unit)
    for n in range(8):
        if n in (3, 5):
            money.unit = float(n)
        if n == 6:
            s.held = Decimal("2.5") if n % 2 else Money("1.5")
        yield step(batch(lib, n))


@case
def numbers_made_of_others(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0, total=Fraction(0))

    def step(x, rate):
        s.n += 1
        s.total = fractions.Fraction(s.n, 3)
        return x * float(Decimal(str(rate)) + s.n)

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n), 0.5 + n % 2), str(s.total)
