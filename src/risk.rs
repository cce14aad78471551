//! Effects a reviewer should see first: places from which something runs later, or that hold what grants access.
//!
//! The list names places, not intentions. It errs towards silence on what every ordinary run does (`git clone` writes
//! sample hooks and a fresh `.git/config`), because a mark that is always there is not read.

use std::env;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use effigy_replay::FileType;

/// Why a path is risky.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Risk {
    StartUp,
    Key,
    Account,
    Hook,
    Crontab,
    SearchPath,
    SetId,
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartUp => "start-up file",
            Self::Key => "key or credential",
            Self::Account => "account or privilege",
            Self::Hook => "hook",
            Self::Crontab => "crontab",
            Self::SearchPath => "directory of PATH",
            Self::SetId => "setuid or setgid",
        })
    }
}

/// What the classification needs to know of one effect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Touched<'a> {
    pub(crate) path: &'a Path,
    /// Type and permission bits afterwards; `None` when the path is gone.
    pub(crate) after: Option<(FileType, u32)>,
    /// Whether the path existed before.
    pub(crate) existed: bool,
}

/// The places that depend on whose run it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    homes: Vec<PathBuf>,
    search: Vec<PathBuf>,
}

/// Below a home directory: a trailing slash takes everything below.
const HOME: [(&str, Risk); 49] = [
    (".bashrc", Risk::StartUp),
    (".bash_profile", Risk::StartUp),
    (".bash_login", Risk::StartUp),
    (".bash_logout", Risk::StartUp),
    (".bash_aliases", Risk::StartUp),
    (".profile", Risk::StartUp),
    (".zshrc", Risk::StartUp),
    (".zshenv", Risk::StartUp),
    (".zprofile", Risk::StartUp),
    (".zlogin", Risk::StartUp),
    (".zlogout", Risk::StartUp),
    (".kshrc", Risk::StartUp),
    (".cshrc", Risk::StartUp),
    (".tcshrc", Risk::StartUp),
    (".login", Risk::StartUp),
    (".inputrc", Risk::StartUp),
    (".pam_environment", Risk::StartUp),
    (".xprofile", Risk::StartUp),
    (".xinitrc", Risk::StartUp),
    (".xsession", Risk::StartUp),
    (".xsessionrc", Risk::StartUp),
    (".vimrc", Risk::StartUp),
    (".vim/", Risk::StartUp),
    (".emacs", Risk::StartUp),
    (".emacs.d/", Risk::StartUp),
    (".tmux.conf", Risk::StartUp),
    (".gdbinit", Risk::StartUp),
    (".pythonrc", Risk::StartUp),
    (".config/fish/", Risk::StartUp),
    (".config/nvim/", Risk::StartUp),
    (".config/autostart/", Risk::StartUp),
    (".config/environment.d/", Risk::StartUp),
    (".config/systemd/user/", Risk::StartUp),
    (".local/share/systemd/user/", Risk::StartUp),
    (".gitconfig", Risk::Hook),
    (".config/git/", Risk::Hook),
    (".ssh/", Risk::Key),
    (".gnupg/", Risk::Key),
    (".aws/", Risk::Key),
    (".azure/", Risk::Key),
    (".kube/", Risk::Key),
    (".docker/config.json", Risk::Key),
    (".config/gcloud/", Risk::Key),
    (".config/gh/", Risk::Key),
    (".netrc", Risk::Key),
    (".git-credentials", Risk::Key),
    (".npmrc", Risk::Key),
    (".pypirc", Risk::Key),
    (".cargo/credentials.toml", Risk::Key),
];

/// Below the root directory.
const SYSTEM: [(&str, Risk); 39] = [
    ("/etc/profile", Risk::StartUp),
    ("/etc/profile.d/", Risk::StartUp),
    ("/etc/bash.bashrc", Risk::StartUp),
    ("/etc/bashrc", Risk::StartUp),
    ("/etc/zsh/", Risk::StartUp),
    ("/etc/zshenv", Risk::StartUp),
    ("/etc/zshrc", Risk::StartUp),
    ("/etc/fish/", Risk::StartUp),
    ("/etc/environment", Risk::StartUp),
    ("/etc/ld.so.preload", Risk::StartUp),
    ("/etc/ld.so.conf", Risk::StartUp),
    ("/etc/ld.so.conf.d/", Risk::StartUp),
    ("/etc/init.d/", Risk::StartUp),
    ("/etc/inittab", Risk::StartUp),
    ("/etc/rc.local", Risk::StartUp),
    ("/etc/systemd/", Risk::StartUp),
    ("/lib/systemd/system/", Risk::StartUp),
    ("/usr/lib/systemd/system/", Risk::StartUp),
    ("/usr/lib/systemd/user/", Risk::StartUp),
    ("/etc/udev/rules.d/", Risk::StartUp),
    ("/etc/xdg/autostart/", Risk::StartUp),
    ("/etc/modules-load.d/", Risk::StartUp),
    ("/etc/modprobe.d/", Risk::StartUp),
    ("/boot/", Risk::StartUp),
    ("/etc/passwd", Risk::Account),
    ("/etc/shadow", Risk::Account),
    ("/etc/group", Risk::Account),
    ("/etc/gshadow", Risk::Account),
    ("/etc/subuid", Risk::Account),
    ("/etc/subgid", Risk::Account),
    ("/etc/sudoers", Risk::Account),
    ("/etc/sudoers.d/", Risk::Account),
    ("/etc/pam.d/", Risk::Account),
    ("/etc/polkit-1/", Risk::Account),
    ("/etc/ssh/", Risk::Key),
    ("/etc/crontab", Risk::Crontab),
    ("/etc/anacrontab", Risk::Crontab),
    ("/var/spool/cron/", Risk::Crontab),
    ("/var/spool/at/", Risk::Crontab),
];

impl Places {
    /// The home directory and the search path that this process was given.
    pub(crate) fn from_environment() -> Self {
        let home = env::var_os("HOME").map(PathBuf::from);
        let search = env::var_os("PATH").unwrap_or_default();
        Self::new(home, env::split_paths(&search))
    }

    fn new(home: Option<PathBuf>, search: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut homes = vec![PathBuf::from("/root")];
        homes.extend(home.filter(|h| h.is_absolute() && h != Path::new("/")));
        Self {
            homes,
            search: search.into_iter().filter(|p| p.is_absolute()).collect(),
        }
    }

    /// Says why an effect is risky, if it is.
    pub(crate) fn risk(&self, touched: Touched<'_>) -> Option<Risk> {
        let path = touched.path;
        if touched.after.is_some_and(is_set_id) {
            return Some(Risk::SetId);
        }
        self.below_home(path)
            .and_then(|rest| find(&HOME, rest.as_os_str().as_bytes()))
            .or_else(|| find(&SYSTEM, path.as_os_str().as_bytes()))
            .or_else(|| periodic(path))
            .or_else(|| hook(touched))
            .or_else(|| self.search_path(touched))
    }

    fn below_home<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let own = self.homes.iter().find_map(|h| path.strip_prefix(h).ok());
        own.or_else(|| {
            let mut parts = path.strip_prefix("/home").ok()?.components();
            parts.next()?;
            Some(parts.as_path())
        })
    }

    /// A directory below a PATH directory is no command; what goes away from one can only be missed.
    fn search_path(&self, touched: Touched<'_>) -> Option<Risk> {
        let (kind, _) = touched.after?;
        let parent = touched.path.parent()?;
        let is_command = kind != FileType::Directory && self.search.iter().any(|p| p == parent);
        is_command.then_some(Risk::SearchPath)
    }
}

/// Set-group-id without group execution marks mandatory locking, and on a directory inheritance: neither grants anything.
fn is_set_id((kind, mode): (FileType, u32)) -> bool {
    kind == FileType::Regular && (mode & 0o4000 != 0 || mode & 0o2010 == 0o2010)
}

fn find(list: &[(&str, Risk)], path: &[u8]) -> Option<Risk> {
    list.iter().find_map(|(place, risk)| {
        let place = place.as_bytes();
        let holds = match place.strip_suffix(b"/") {
            Some(directory) => path == directory || path.starts_with(place),
            None => path == place,
        };
        holds.then_some(*risk)
    })
}

/// `/etc/cron.d/x`, `/etc/cron.daily/x` and their siblings; `/etc/rc3.d/x`.
fn periodic(path: &Path) -> Option<Risk> {
    let below_etc = path.strip_prefix("/etc").ok()?;
    let Component::Normal(first) = below_etc.components().next()? else {
        return None;
    };
    let first = first.as_bytes();
    if first.starts_with(b"cron.") {
        return Some(Risk::Crontab);
    }
    let run_level = first.len() == 5 && first.starts_with(b"rc") && first.ends_with(b".d");
    run_level.then_some(Risk::StartUp)
}

fn hook(touched: Touched<'_>) -> Option<Risk> {
    let parts: Vec<&[u8]> = touched
        .path
        .components()
        .map(|c| c.as_os_str().as_bytes())
        .collect();
    let git_directory = parts
        .iter()
        .position(|p| *p == b".git" || p.ends_with(b".git"));
    if let Some(at) = git_directory {
        return match &parts[at + 1..] {
            [first, .., name] if *first == b"hooks" && !name.ends_with(b".sample") => {
                Some(Risk::Hook)
            }
            [name] if *name == b"config" && touched.existed => Some(Risk::Hook),
            _ => None,
        };
    }
    let husky = parts.iter().rev().skip(1).any(|p| *p == b".husky");
    husky.then_some(Risk::Hook)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: (FileType, u32) = (FileType::Regular, 0o644);

    fn risk_of(path: &str, after: Option<(FileType, u32)>, existed: bool) -> Option<Risk> {
        let places = Places::new(
            Some(PathBuf::from("/srv/people/ann")),
            ["/usr/bin", "/srv/people/ann/bin", "relative"].map(PathBuf::from),
        );
        places.risk(Touched {
            path: Path::new(path),
            after,
            existed,
        })
    }

    #[test]
    fn known_places_are_found() {
        for (path, risk) in [
            ("/srv/people/ann/.bashrc", Risk::StartUp),
            ("/home/bob/.bashrc", Risk::StartUp),
            ("/root/.ssh/authorized_keys", Risk::Key),
            ("/srv/people/ann/.ssh", Risk::Key),
            ("/etc/profile.d/x.sh", Risk::StartUp),
            ("/etc/cron.daily/x", Risk::Crontab),
            ("/var/spool/cron/crontabs/ann", Risk::Crontab),
            ("/etc/rc3.d/S01x", Risk::StartUp),
            ("/etc/shadow", Risk::Account),
            ("/p/.git/hooks/post-checkout", Risk::Hook),
            ("/p/bare.git/hooks/update", Risk::Hook),
            ("/p/.husky/pre-commit", Risk::Hook),
            ("/usr/bin/tree", Risk::SearchPath),
            ("/srv/people/ann/bin/ls", Risk::SearchPath),
        ] {
            assert_eq!(risk_of(path, Some(FILE), false), Some(risk), "{path}");
        }
    }

    #[test]
    fn ordinary_effects_are_not_marked() {
        for path in [
            "/srv/people/ann/project/.bashrc",
            "/home/bob/src/main.rs",
            "/etc/profiles",
            "/etc/rcs",
            "/p/.git/hooks/pre-commit.sample",
            "/p/.git/config",
            "/p/.git/hooks",
            "/p/hooks/x",
            "/usr/bin/sub/x",
            "/srv/people/ann/.sshx",
        ] {
            assert_eq!(risk_of(path, Some(FILE), false), None, "{path}");
        }
    }

    #[test]
    fn a_changed_git_config_can_run_commands() {
        assert_eq!(
            risk_of("/p/.git/config", Some(FILE), true),
            Some(Risk::Hook)
        );
    }

    #[test]
    fn set_id_counts_on_files_that_run() {
        assert_eq!(
            risk_of("/p/b", Some((FileType::Regular, 0o4755)), false),
            Some(Risk::SetId)
        );
        assert_eq!(
            risk_of("/p/b", Some((FileType::Regular, 0o2755)), false),
            Some(Risk::SetId)
        );
        assert_eq!(
            risk_of("/p/b", Some((FileType::Regular, 0o2644)), false),
            None
        );
        assert_eq!(
            risk_of("/p/d", Some((FileType::Directory, 0o2775)), false),
            None
        );
    }

    #[test]
    fn deletions_of_risky_files_are_risky() {
        assert_eq!(
            risk_of("/root/.ssh/known_hosts", None, true),
            Some(Risk::Key)
        );
        assert_eq!(risk_of("/usr/bin/tree", None, true), None);
    }
}
