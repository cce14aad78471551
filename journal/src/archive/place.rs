//! Where in a session's directory an entry belongs.

/// A place in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Head,
    Record,
    Journal,
    /// `versions` or `layers` themselves.
    Holder,
    Version,
    /// `layers/<n>`.
    Layer,
    /// `layers/<n>/upper` and all below it.
    Upper,
}

impl Place {
    /// The place that a name means; `None` when it is none of a session's.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let mut parts = name.split(|&byte| byte == b'/');
        let first = parts.next()?;
        let second = parts.next();
        let third = parts.next();
        Some(match (first, second, third) {
            (b"effigy.json", None, None) => Self::Head,
            (b"session.json", None, None) => Self::Record,
            (b"journal", None, None) => Self::Journal,
            (b"versions" | b"layers", None, None) => Self::Holder,
            (b"versions", Some(number), None) if is_number(number) => Self::Version,
            (b"layers", Some(number), None) if is_number(number) => Self::Layer,
            (b"layers", Some(number), Some(b"upper")) if is_number(number) => {
                parts.all(is_name).then_some(Self::Upper)?
            }
            _ => return None,
        })
    }
}

/// A number as effigy writes it, so that no two names mean the same.
fn is_number(text: &[u8]) -> bool {
    let plain = text.iter().all(u8::is_ascii_digit) && (text == b"0" || !text.starts_with(b"0"));
    plain && super::pax::number::<u32>(text).is_some()
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&0) && name.len() <= 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_places_of_a_session_are_known() {
        let known: [(&[u8], Place); 7] = [
            (b"session.json", Place::Record),
            (b"journal", Place::Journal),
            (b"versions/0", Place::Version),
            (b"layers/12", Place::Layer),
            (b"layers/12/upper", Place::Upper),
            (b"layers/0/upper/\xff a/..b", Place::Upper),
            (b"layers", Place::Holder),
        ];
        for (name, place) in known {
            assert_eq!(Place::of(name), Some(place), "{name:?}");
        }
        for name in [
            &b""[..],
            b"/etc/passwd",
            b"lock",
            b"apply/1/plan",
            b"journal/x",
            b"versions/00",
            b"versions/1/x",
            b"versions/4294967296",
            b"layers/0/work",
            b"layers/0/upper/",
            b"layers/0/upper//a",
            b"layers/0/upper/../../../x",
            b"layers/0/upper/.",
            b"layers/../upper",
            b"layers/0/upper/a\0b",
            b"../x",
        ] {
            assert_eq!(Place::of(name), None, "{name:?}");
        }
    }
}
