//! Runs a command in a semisolate and says where its writes went: `cargo run --example run -- STORE COMMAND [ARG...]`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use effigy_semisolate::{Identity, Plan, Progress, RealTree, Request, Wishes, current_mounts};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let store =
        PathBuf::from(words.next().ok_or("usage: run STORE COMMAND [ARG...]")?).canonicalize()?;
    let layers = store.join("layers");
    std::fs::create_dir_all(&layers)?;
    let working_directory = std::env::current_dir()?;
    let identity = Identity::of_this_process(false);
    let wishes = Wishes {
        working_directory: working_directory.clone(),
        store,
        ..Wishes::default()
    };
    let plan = Plan::new(
        &current_mounts()?,
        !identity.is_privileged(),
        &wishes,
        &RealTree,
    )?;
    let mut request = Request::new(words.collect(), plan, identity, working_directory, layers);
    for (name, value) in std::env::vars_os() {
        request.environment.push(CString::new(
            [name.as_bytes(), b"=", value.as_bytes()].concat(),
        )?);
    }
    let ready = request.build()?;
    for cover in &ready.built.covers {
        eprintln!(
            "layer {} takes what is written below {}",
            cover.layer,
            cover.mount_point.display()
        );
    }
    for (path, reason) in &ready.built.named {
        eprintln!("{} is read-only: {reason}", path.display());
    }
    let mut running = ready.go()?;
    loop {
        match running.wait() {
            Progress::Ended(ended) => {
                eprintln!("{ended:?}");
                return Ok(());
            }
            Progress::Lost(reason) => return Err(format!("the run was lost: {reason:?}").into()),
            other => eprintln!("{other:?}"),
        }
    }
}
