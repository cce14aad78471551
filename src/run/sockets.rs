//! Which Unix sockets of outside the command may reach. What a service does is real and not recorded, so only those that
//! somebody named; and the ssh agent's, which signs and changes nothing.

use std::env;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::resolve;
use crate::cli::RunOptions;
use crate::failure::Failure;
use crate::render::name::escaped;

/// The sockets of `--pass-socket` and `--display`, without symbolic links.
pub(super) fn named(options: &RunOptions) -> anyhow::Result<Vec<PathBuf>> {
    let mut sockets = Vec::new();
    for path in &options.pass_socket {
        let path = resolve(path)?;
        if !is_socket(&path) {
            return Err(Failure::new(format!(
                "cannot pass {}: it is no Unix socket",
                escaped(path.as_os_str())
            ))
            .into());
        }
        sockets.push(path);
    }
    if options.display {
        let found = displays();
        if found.is_empty() {
            return Err(Failure::new("cannot pass the display: there is none")
                .hint("DISPLAY or WAYLAND_DISPLAY names it; --pass-socket PATH passes any socket")
                .into());
        }
        sockets.extend(found);
    }
    Ok(sockets)
}

/// The ssh agent's socket.
pub(super) fn agent() -> Option<PathBuf> {
    PathBuf::from(env::var_os("SSH_AUTH_SOCK")?)
        .canonicalize()
        .ok()
}

/// The sockets of the Wayland compositor and of a local X server, where they are.
fn displays() -> Vec<PathBuf> {
    let wayland = env::var_os("WAYLAND_DISPLAY").and_then(|display| {
        let below = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        // An absolute name stands for itself.
        below
            .map(|below| below.join(&display))
            .or_else(|| Path::new(&display).is_absolute().then(|| display.into()))
    });
    let x11 = env::var("DISPLAY")
        .ok()
        .and_then(|display| Some(format!("/tmp/.X11-unix/X{}", local_number(&display)?).into()));
    let found = [wayland, x11].into_iter().flatten();
    found
        .filter_map(|path: PathBuf| path.canonicalize().ok())
        .filter(|path| is_socket(path))
        .collect()
}

/// The number in `:0`, `:0.0` or `unix:0`; a display of another machine is reached over the network.
fn local_number(display: &str) -> Option<u32> {
    let (host, rest) = display.split_once(':')?;
    let number = rest.split('.').next()?;
    matches!(host, "" | "unix")
        .then(|| number.parse().ok())
        .flatten()
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|stat| stat.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_displays_have_numbers() {
        assert_eq!(local_number(":0"), Some(0));
        assert_eq!(local_number(":12.1"), Some(12));
        assert_eq!(local_number("unix:3"), Some(3));
        assert_eq!(local_number("far.example:0"), None);
        assert_eq!(local_number("wayland-0"), None);
    }
}
