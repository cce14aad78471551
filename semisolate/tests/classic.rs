//! A semisolate on a kernel without the mount interface of Linux 5.2: the calls are made to answer ENOSYS by a seccomp filter.

#![expect(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The `run` example, which cargo builds before it runs the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/run")
}

/// Lets `command` see ENOSYS for the calls of the new mount interface.
fn without_mount_interface(command: &mut Command) -> &mut Command {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let calls = [
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fsmount,
        libc::SYS_mount_setattr,
    ];
    let mut program = vec![libc::sock_filter {
        code: LOAD_NUMBER,
        jt: 0,
        jf: 0,
        k: 0,
    }];
    for (index, call) in calls.iter().enumerate() {
        let to_refusal = u8::try_from(calls.len() - index).unwrap();
        program.push(libc::sock_filter {
            code: JUMP_IF_EQUAL,
            jt: to_refusal,
            jf: 0,
            k: u32::try_from(*call).unwrap(),
        });
    }
    program.push(libc::sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    });
    let refusal = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    program.push(libc::sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: refusal,
    });
    let install = move || {
        let program = libc::sock_fprog {
            len: u16::try_from(program.len()).map_err(io::Error::other)?,
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: prctl with these arguments takes no pointers but the program, which outlives the call.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: the hook only makes system calls.
    unsafe { command.pre_exec(install) }
}

#[test]
fn the_classic_calls_give_the_same_world() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(dir.path().join("file"), "real\n").unwrap();
    std::fs::create_dir(dir.path().join("store")).unwrap();
    let mut command = Command::new(example());
    command.current_dir(dir.path()).arg("store").args(["sh", "-c"]).arg(
        "echo inside >file; cat file; ls store; echo x 2>/dev/null >/sys/pwned || echo sys is read-only; ls /proc/1/comm; echo >/dev/null",
    );
    let output = without_mount_interface(&mut command).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8(output.stderr).unwrap()
    );
    assert_eq!(text, "inside\nsys is read-only\n/proc/1/comm\n");
    assert_eq!(
        std::fs::read_to_string(dir.path().join("file")).unwrap(),
        "real\n"
    );
}
