//! /proc/TID/status, as far as the supervisor needs it.

/// What it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) umask: u32,
    pub(super) tgid: u32,
    pub(super) ppid: u32,
    pub(super) fsuid: u32,
    pub(super) fsgid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) inner_tid: u32,
    pub(super) inner_tgid: u32,
    pub(super) effective: u64,
    /// A seccomp filter binds it.
    pub(super) filtered: bool,
}

impl Status {
    /// Reads the text; what is missing is 0, which no comparison takes for the semisolate's own.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut status = Self {
            umask: 0o22,
            ..Self::default()
        };
        for line in text.split(|byte| *byte == b'\n') {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                continue;
            };
            let (key, value) = (&line[..colon], &line[colon + 1..]);
            // Most of some sixty lines are not asked for.
            if !matches!(
                key,
                b"Umask"
                    | b"Tgid"
                    | b"PPid"
                    | b"Uid"
                    | b"Gid"
                    | b"Groups"
                    | b"NSpid"
                    | b"NStgid"
                    | b"CapEff"
                    | b"Seccomp"
            ) {
                continue;
            }
            let Ok(value) = std::str::from_utf8(value) else {
                continue;
            };
            let mut words = value.split_ascii_whitespace();
            let last = || {
                value
                    .split_ascii_whitespace()
                    .last()
                    .and_then(|word| word.parse().ok())
                    .unwrap_or(0)
            };
            let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            match key {
                b"Umask" => status.umask = u32::from_str_radix(value.trim(), 8).unwrap_or(0o22),
                b"Tgid" => status.tgid = number(),
                b"PPid" => status.ppid = number(),
                // Real, effective, saved and filesystem id.
                b"Uid" => status.fsuid = last(),
                b"Gid" => status.fsgid = last(),
                b"Groups" => {
                    status.groups = value
                        .split_ascii_whitespace()
                        .filter_map(|word| word.parse().ok())
                        .collect();
                    status.groups.sort_unstable();
                }
                // One number per PID namespace, the innermost last.
                b"NSpid" => status.inner_tid = last(),
                b"NStgid" => status.inner_tgid = last(),
                b"CapEff" => status.effective = u64::from_str_radix(value.trim(), 16).unwrap_or(0),
                _ => status.filtered = number() == 2,
            }
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_innermost_numbers_and_the_filesystem_ids() {
        let text = b"Name:\tx: y\nUmask:\t0077\nTgid:\t900\nPid:\t901\nPPid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t20 10 \n\
            NStgid:\t900\t3\nNSpid:\t901\t4\nCapEff:\t00000000000000ff\nSeccomp:\t2\n";
        assert_eq!(
            Status::parse(text),
            Status {
                umask: 0o77,
                tgid: 900,
                ppid: 7,
                fsuid: 4,
                fsgid: 8,
                groups: vec![10, 20],
                inner_tid: 4,
                inner_tgid: 3,
                effective: 0xff,
                filtered: true
            }
        );
    }

    #[test]
    fn survives_what_is_not_a_status() {
        assert_eq!(Status::parse(b"\xff\xfe\nTgid\nPPid: many").ppid, 0);
    }
}
