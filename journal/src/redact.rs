//! Arguments that look like secrets: kept in the journal, left out where it is given away.
//!
//! A guess, made to err towards leaving out: a value after a word such as `password`, `token` or `secret`, a password in a
//! URL, and what has the form of well-known tokens.

use crate::bytes::ByteString;

/// What stands instead.
const LEFT_OUT: &[u8] = b"[redacted]";

/// Words whose values are secret; in names compared without case, `-`, `_` and `.`.
const WORDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "authorization",
    "cookie",
    "bearer",
    "sshpass",
    "pgpassword",
];

/// How well-known tokens begin, and how long they are at least.
const TOKENS: &[(&str, usize)] = &[
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("ghu_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("npm_", 24),
    ("pypi-", 24),
    ("sk-", 20),
    ("sk_live_", 16),
    ("rk_live_", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("AKIA", 20),
    ("ASIA", 20),
    ("AIza", 30),
    ("hf_", 20),
    ("eyJ", 30),
    ("hvs.", 20),
];

/// Leaves secrets out of the arguments of a command; says of how many.
///
/// ```
/// use effigy_journal::{ByteString, redact::redact};
/// let mut argv: Vec<ByteString> = ["curl", "--token", "abc", "https://me:pw@host/"].map(Into::into).into();
/// assert_eq!(redact(&mut argv), 2);
/// assert_eq!(argv[2].as_bytes(), b"[redacted]");
/// assert_eq!(argv[3].as_bytes(), b"https://me:[redacted]@host/");
/// ```
pub fn redact(argv: &mut [ByteString]) -> u64 {
    let program = argv
        .first()
        .map(|program| base_name(program.as_bytes()).to_vec());
    let program = program.unwrap_or_default();
    let mut count = 0;
    let mut secret_next = false;
    for (at, argument) in argv.iter_mut().enumerate().skip(1) {
        let bytes = argument.as_bytes();
        let value_of_option = secret_next && !bytes.starts_with(b"-");
        secret_next = is_secret_option(bytes) || is_credential_option(&program, bytes);
        let redacted = if value_of_option {
            Some(LEFT_OUT.to_vec())
        } else if at == 1 || !glued_password(&program, bytes) {
            words(bytes)
        } else {
            Some([&bytes[..2], LEFT_OUT].concat())
        };
        if let Some(redacted) = redacted {
            *argument = redacted.into();
            count += 1;
        }
    }
    count
}

/// Leaves secrets out of a text; says whether there was one, as 1 or 0.
pub fn redact_text(text: &mut ByteString) -> u64 {
    match words(text.as_bytes()) {
        Some(redacted) => {
            *text = redacted.into();
            1
        }
        None => 0,
    }
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// `--token`, whose value is the next argument.
fn is_secret_option(argument: &[u8]) -> bool {
    argument.starts_with(b"-") && !argument.contains(&b'=') && is_secret_name(argument)
}

/// Options without a telling name that take a secret.
fn is_credential_option(program: &[u8], argument: &[u8]) -> bool {
    match program {
        b"curl" => matches!(
            argument,
            b"-u" | b"--user" | b"-b" | b"-U" | b"--proxy-user"
        ),
        b"sshpass" => argument == b"-p",
        b"docker" | b"podman" | b"skopeo" | b"helm" => argument == b"-p",
        _ => false,
    }
}

/// `mysql -pSECRET`.
fn glued_password(program: &[u8], argument: &[u8]) -> bool {
    let takes =
        program.starts_with(b"mysql") || program.starts_with(b"mariadb") || program == b"sshpass";
    takes && argument.starts_with(b"-p") && argument.len() > 2
}

fn is_secret_name(name: &[u8]) -> bool {
    let plain: Vec<u8> = name
        .iter()
        .filter(|byte| !matches!(byte, b'-' | b'_' | b'.'))
        .map(u8::to_ascii_lowercase)
        .collect();
    let holds = |word: &str| {
        plain
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    };
    WORDS.iter().any(|word| holds(word))
        || matches!(plain.as_slice(), b"pwd" | b"pass" | b"auth" | b"pw")
        || plain.ends_with(b"pass")
}

/// The text with its secrets left out, if it has any. Blanks separate words, as in a script given to a shell.
fn words(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut found = false;
    let mut secret_next = false;
    let mut rest = text;
    while !rest.is_empty() {
        let blank = rest
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
        out.extend_from_slice(&rest[..blank]);
        rest = &rest[blank..];
        let len = rest
            .iter()
            .take_while(|byte| !byte.is_ascii_whitespace())
            .count();
        let (word, after) = rest.split_at(len);
        rest = after;
        if word.is_empty() {
            break;
        }
        // `Authorization: Bearer xyz`: the scheme is no secret, what follows is.
        let scheme = secret_next
            && matches!(
                word.to_ascii_lowercase().as_slice(),
                b"bearer" | b"basic" | b"token"
            );
        if secret_next && !scheme && !word.starts_with(b"-") {
            out.extend_from_slice(LEFT_OUT);
            found = true;
            secret_next = false;
            continue;
        }
        secret_next = scheme
            || (word.ends_with(b":") && is_secret_name(word))
            || (blank + len < text.len() && is_secret_option(word));
        match one_word(word) {
            Some(redacted) => {
                out.extend_from_slice(&redacted);
                found = true;
            }
            None => out.extend_from_slice(word),
        }
    }
    found.then_some(out)
}

fn one_word(word: &[u8]) -> Option<Vec<u8>> {
    // NAME=VALUE, --name=VALUE, Name:VALUE
    if let Some(cut) = word.iter().position(|byte| matches!(byte, b'=' | b':'))
        && is_secret_name(&word[..cut])
        && cut + 1 < word.len()
        && !word[cut..].starts_with(b"://")
    {
        return Some([&word[..=cut], LEFT_OUT].concat());
    }
    if let Some(start) = find(word, b"://") {
        let authority = &word[start + 3..];
        let end = authority
            .iter()
            .position(|byte| matches!(byte, b'/' | b'?' | b'#'))
            .unwrap_or(authority.len());
        if let Some(at) = authority[..end].iter().rposition(|&byte| byte == b'@')
            && let Some(colon) = authority[..at].iter().position(|&byte| byte == b':')
        {
            let head = &word[..start + 3 + colon + 1];
            return Some([head, LEFT_OUT, &authority[at..]].concat());
        }
    }
    token(word)
}

/// A word with the token in it left out.
fn token(word: &[u8]) -> Option<Vec<u8>> {
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    for (start, len) in TOKENS {
        let Some(at) = find(word, start.as_bytes()) else {
            continue;
        };
        if at > 0 && word[at - 1].is_ascii_alphanumeric() {
            continue;
        }
        let long = word[at..].iter().take_while(|byte| part(byte)).count();
        if long >= *len {
            return Some([&word[..at], LEFT_OUT, &word[at + long..]].concat());
        }
    }
    None
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|part| part == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(argv: &[&str]) -> String {
        let mut argv: Vec<ByteString> = argv.iter().map(|word| (*word).into()).collect();
        redact(&mut argv);
        let words: Vec<&str> = argv
            .iter()
            .map(|word| std::str::from_utf8(word.as_bytes()).expect("text"))
            .collect();
        words.join("|")
    }

    #[test]
    fn secrets_are_left_out() {
        for (argv, expected) in [
            (
                &["x", "--password", "hunter2", "-v"][..],
                "x|--password|[redacted]|-v",
            ),
            (&["x", "--api-key=abc", "n"], "x|--api-key=[redacted]|n"),
            (
                &["env", "GITHUB_TOKEN=abc", "make"],
                "env|GITHUB_TOKEN=[redacted]|make",
            ),
            (
                &[
                    "curl",
                    "-H",
                    "Authorization: Bearer abc",
                    "-u",
                    "me:pw",
                    "u",
                ],
                "curl|-H|Authorization: Bearer [redacted]|-u|[redacted]|u",
            ),
            (
                &["mysql", "-u", "me", "-phunter2"],
                "mysql|-u|me|-p[redacted]",
            ),
            (
                &["git", "clone", "https://me:pw@host/a@b"],
                "git|clone|https://me:[redacted]@host/a@b",
            ),
            (
                &[
                    "sh",
                    "-c",
                    "export AWS_SECRET_ACCESS_KEY=abc; run --token abc x",
                ],
                "sh|-c|export AWS_SECRET_ACCESS_KEY=[redacted] run --token [redacted] x",
            ),
            (&["x", "ghp_0123456789abcdefABCDEF"], "x|[redacted]"),
        ] {
            assert_eq!(redacted(argv), expected);
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for argv in [
            &["cp", "-p", "a", "b"][..],
            &["sh", "-c", "echo a=b; ls https://host:80/x@y"],
            &["tar", "--exclude=x", "-pxf", "passing.tar"],
            &["cc", "-DX=1", "token.c"],
            &["--token", "x"],
        ] {
            assert_eq!(redacted(argv), argv.join("|"));
        }
    }
}
