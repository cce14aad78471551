//! Sizes, ages and times: as they are typed and as they are shown.

use std::time::Duration;

use effigy_journal::Budget;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;

/// Splits `12h` into 12 and `h`.
fn split_number(text: &str) -> Result<(u64, &str), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("must begin with a number".to_owned());
    }
    let number = number
        .parse()
        .map_err(|_| format!("{number} is too large"))?;
    Ok((number, unit))
}

/// Reads an age such as `90s`, `30m`, `12h`, `7d` or `2w`; the unit may not be left out.
pub(crate) fn parse_age(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_number(text)?;
    let unit = match unit {
        "s" => 1,
        "m" | "min" => MINUTE,
        "h" => HOUR,
        "d" => DAY,
        "w" => WEEK,
        _ => return Err("must end with s, m, h, d or w, as in 12h or 7d".to_owned()),
    };
    let seconds = number
        .checked_mul(unit)
        .ok_or_else(|| format!("{text} is too long"))?;
    Ok(Duration::from_secs(seconds))
}

/// Reads a size such as `4096`, `64K`, `500M` or `2G`; the units are powers of 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text)?;
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("must end with K, M, G or T, as in 500M".to_owned()),
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text} is too large"))
}

/// Reads what `--keep-versions` takes: `all`, `none`, or a size.
pub(crate) fn parse_budget(text: &str) -> Result<Budget, String> {
    match text {
        "all" => Ok(Budget::All),
        "none" => Ok(Budget::None),
        size => parse_size(size).map(Budget::File),
    }
}

/// Shows a number of bytes in at most five characters: `0B`, `999B`, `1.5K`, `12M`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    // Tenths of the unit, rounded, in integers: a float would show 1024K where 1.0M is meant.
    let mut value = u128::from(bytes) * 10;
    let mut unit = "";
    for name in UNITS {
        value = (value + 512) / 1024;
        unit = name;
        if value < 10_240 {
            break;
        }
    }
    if value < 100 {
        format!("{}.{}{unit}", value / 10, value % 10)
    } else {
        format!("{}{unit}", (value + 5) / 10)
    }
}

/// Shows how long ago something was, in its largest unit: `5s`, `12m`, `3h`, `2d`, `6w`.
pub(crate) fn age(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match seconds {
        0..MINUTE => format!("{seconds}s"),
        MINUTE..HOUR => format!("{}m", seconds / MINUTE),
        HOUR..DAY => format!("{}h", seconds / HOUR),
        DAY..WEEK => format!("{}d", seconds / DAY),
        _ => format!("{}w", seconds / WEEK),
    }
}

/// Shows `1 path`, `3 paths`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

/// Shows a point in time as RFC 3339 in UTC, to the second: `2026-11-30T17:26:21Z`.
pub(crate) fn utc(seconds: i64) -> String {
    let day = seconds.div_euclid(86_400);
    let of_day = seconds.rem_euclid(86_400);
    let (year, month, date) = civil(day);
    format!(
        "{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}Z",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// The proleptic Gregorian date of a day counted from 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`): years are counted from March so that the leap day comes last.
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read() {
        assert_eq!(parse_age("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_age("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(parse_age("12h"), Ok(Duration::from_secs(43_200)));
        assert_eq!(parse_age("7d"), parse_age("1w"));
        for wrong in [
            "",
            "d",
            "7",
            "7y",
            "-1d",
            "7 d",
            "1.5h",
            "99999999999999999999d",
            "9999999999999999999w",
        ] {
            assert!(parse_age(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64K"), Ok(65_536));
        assert_eq!(parse_budget("64K"), Ok(Budget::File(65_536)));
        assert_eq!(parse_budget("none"), Ok(Budget::None));
        assert!(parse_budget("some").is_err());
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("2GB"), Ok(2 << 30));
        for wrong in ["", "M", "1X", "1.5M", "-1", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0K"),
            (1536, "1.5K"),
            (10 * 1024, "10K"),
            (1024 * 1024 - 1, "1.0M"),
            (1 << 30, "1.0G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3599, "59m"),
            (7200, "2h"),
            (90_000, "1d"),
            (700_000, "1w"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
