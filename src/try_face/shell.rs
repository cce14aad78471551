//! What the arguments mean to the shell.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use nix::unistd::{AccessFlags, Uid, User, access};

/// The shell: `TRY_SHELL`, else `SHELL`, else the login shell, else `/bin/sh`. fish is taken only when `TRY_SHELL` names it; what
/// keeps a user from logging in is no shell.
pub(super) fn find() -> OsString {
    let executable = |shell: &OsString| access(Path::new(shell), AccessFlags::X_OK).is_ok();
    let is_one_of = |shell: &OsString, names: &[&str]| {
        let name = Path::new(shell).file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| names.contains(&name))
    };
    let fish = |shell: &OsString| is_one_of(shell, &["fish"]);
    let no_shell = |shell: &OsString| is_one_of(shell, &["fish", "nologin", "false"]);
    let login = || {
        let user = User::from_uid(Uid::effective()).ok().flatten()?;
        Some(user.shell.into_os_string())
    };
    env::var_os("TRY_SHELL")
        .filter(executable)
        .or_else(|| {
            env::var_os("SHELL")
                .filter(executable)
                .filter(|shell| !fish(shell))
        })
        .or_else(|| login().filter(executable).filter(|shell| !no_shell(shell)))
        .unwrap_or_else(|| "/bin/sh".into())
}

/// The arguments joined into a script: one alone is a script as it is; of several each stays one word, but for the signs with
/// which a shell connects and redirects, which mean what they mean.
pub(super) fn script(words: &[OsString]) -> OsString {
    if let [script] = words {
        return script.clone();
    }
    let words: Vec<Vec<u8>> = words.iter().map(|word| quoted(word.as_bytes())).collect();
    OsString::from_vec(words.join(&b' '))
}

fn quoted(word: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(byte);
    if !word.is_empty() && word.iter().all(plain) || is_sign(word) {
        return word.to_vec();
    }
    let mut quoted = vec![b'\''];
    for &byte in word {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

/// `|`, `&&`, `>`, `2>`, `2>&1` and their kin. Not `;`: as a word of its own it is an argument of find.
fn is_sign(word: &[u8]) -> bool {
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (_, sign) = word.split_at(digits);
    match sign {
        b"|" | b"||" | b"&&" => digits == 0,
        b"<" | b">" | b">>" => true,
        [b'>', b'&', target @ ..] => !target.is_empty() && target.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        script(&words).into_string().expect("UTF-8")
    }

    #[test]
    fn one_argument_is_a_script() {
        assert_eq!(joined(&["echo $A; echo b > c"]), "echo $A; echo b > c");
    }

    #[test]
    fn several_arguments_stay_what_they_are() {
        assert_eq!(
            joined(&["printf", "%s\\n", "a b", "it's", "", "$A", "*", "A=1"]),
            r"printf '%s\n' 'a b' 'it'\''s' '' '$A' '*' A=1"
        );
        assert_eq!(
            joined(&["find", ".", "-exec", "ls", "{}", ";"]),
            "find . -exec ls '{}' ';'"
        );
    }

    #[test]
    fn signs_of_the_shell_are_signs() {
        assert_eq!(
            joined(&["a", "2>&1", "|", "b", ">", "c d", "&&", "e", "2>", "f"]),
            "a 2>&1 | b > 'c d' && e 2> f"
        );
        assert_eq!(joined(&["a", "1|", "x>"]), "a '1|' 'x>'");
    }
}
