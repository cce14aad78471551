//! Pax records: `LENGTH KEY=VALUE\n`, where the length counts itself.

/// Appends a record.
pub(super) fn push(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + digits(len) {
        len = rest + digits(len);
    }
    records.extend_from_slice(len.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

fn digits(n: usize) -> usize {
    n.to_string().len()
}

/// The records of a header; `None` when they are not well formed.
pub(super) fn parse(mut bytes: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().take(20).position(|&b| b == b' ')?;
        let len: usize = number(&bytes[..space])?;
        let record = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|&b| b == b'=')?;
        records.push((&record[..equals], &record[equals + 1..]));
        bytes = &bytes[len..];
    }
    Some(records)
}

/// A decimal number.
pub(super) fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The key of an extended attribute.
pub(super) fn attribute_key(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for &byte in name {
        match byte {
            b'%' => key.extend_from_slice(b"%25"),
            b'=' => key.extend_from_slice(b"%3D"),
            _ => key.push(byte),
        }
    }
    key
}

/// The name of an extended attribute, of the part of a key after its prefix.
pub(super) fn attribute_name(mut key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len());
    while let Some((&first, rest)) = key.split_first() {
        let (byte, used) = match key {
            [b'%', b'2', b'5', ..] => (b'%', 3),
            [b'%', b'3', b'D', ..] => (b'=', 3),
            _ => (first, key.len() - rest.len()),
        };
        name.push(byte);
        key = &key[used..];
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        for len in [0, 1, 80, 90, 91, 92, 93, 94, 95, 980, 990, 991, 995, 70_000] {
            let value = vec![b'\n'; len];
            let mut records = Vec::new();
            push(&mut records, b"path", &value);
            push(&mut records, b"k", b"a=b");
            let expected: Vec<(&[u8], &[u8])> = vec![(b"path", &value), (b"k", b"a=b")];
            assert_eq!(parse(&records), Some(expected), "{len}");
        }
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        for wrong in [
            &b"x"[..],
            b"5 a=b",
            b"999 a=b\n",
            b"2 a=b\n",
            b"0 a=b\n",
            b"-6 a=b\n",
            b"5 ab\n",
            b"18446744073709551616 a=b\n",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn names_of_attributes_come_back() {
        let name = b"user.a=b%3D%c\xff";
        let key = attribute_key(name);
        assert_eq!(
            attribute_name(key.strip_prefix(b"SCHILY.xattr.").expect("its prefix")),
            name
        );
        assert!(!key.contains(&b'='));
    }
}
