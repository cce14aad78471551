//! The seccomp filter, built from the table.
//!
//! Per ABI a balanced search over the numbers of the calls that stop, then the test of [`Stop`]; everything else is allowed.
//! The kernel remembers per number whether a filter allows it without looking at arguments, so reads and writes never run it.
//!
//! It is assembled here and not by libseccomp: 2.5.4 knows no setxattrat, removexattrat or file_setattr, which it then cannot
//! filter by name on the second ABI, and it takes 0.8 ms for these rules, a tenth of what a traced `true` may take. A test has
//! libseccomp check the numbers.

use crate::syscalls::{Abi, Call, Stop, TABLE};
use libc::{
    BPF_ABS, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W,
    sock_filter,
};

/// Offsets in struct seccomp_data (linux/seccomp.h).
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGS: u32 = 16;

/// Set in the number of an x32 call.
const X32: u32 = 0x4000_0000;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

#[expect(
    clippy::cast_possible_truncation,
    reason = "every BPF code fits 16 bits (linux/bpf_common.h)"
)]
const fn op(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

fn load(offset: u32) -> sock_filter {
    op(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset)
}

fn ret(action: u32) -> sock_filter {
    op(BPF_RET | BPF_K, 0, 0, action)
}

fn skip(by: usize) -> sock_filter {
    op(
        BPF_JMP | BPF_JA,
        0,
        0,
        u32::try_from(by).unwrap_or(u32::MAX),
    )
}

/// The filter for the ABIs of this machine.
#[must_use]
pub fn build(reads: bool) -> Vec<sock_filter> {
    build_for(Abi::native(), reads)
}

/// The filter for some ABIs. A call of any other ABI is answered with ENOSYS: it could not be recorded.
#[must_use]
pub fn build_for(abis: &[Abi], reads: bool) -> Vec<sock_filter> {
    let mut program = vec![load(ARCH)];
    for &abi in abis {
        let mut rows: Vec<(u32, &Call)> = TABLE
            .iter()
            .filter(|call| call.stops(reads))
            .filter_map(|call| Some((call.number(abi)?, call)))
            .collect();
        rows.sort_unstable_by_key(|(number, _)| *number);
        let mut block = vec![load(NUMBER)];
        if abi == Abi::X86_64 {
            block.push(op(BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32));
            block.push(ret(NO_SUCH_CALL));
        }
        block.extend(search(&rows, reads));
        program.push(op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, abi.audit()));
        program.push(skip(block.len()));
        program.extend(block);
    }
    program.push(ret(NO_SUCH_CALL));
    program
}

/// Code that looks the number in the accumulator up in sorted rows, and returns.
fn search(rows: &[(u32, &Call)], reads: bool) -> Vec<sock_filter> {
    match rows {
        [] => vec![ret(ALLOW)],
        [(number, call)] => {
            let mut code = vec![op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, *number), ret(ALLOW)];
            code.extend(test(call.stop_when(reads)));
            code
        }
        _ => {
            let (low, high) = rows.split_at(rows.len() / 2);
            let left = search(low, reads);
            let mut code = match u8::try_from(left.len()) {
                Ok(over) => vec![op(BPF_JMP | BPF_JGE | BPF_K, over, 0, high[0].0)],
                Err(_) => vec![
                    op(BPF_JMP | BPF_JGE | BPF_K, 0, 1, high[0].0),
                    skip(left.len()),
                ],
            };
            code.extend(left);
            code.extend(search(high, reads));
            code
        }
    }
}

/// Code that decides on a call's arguments, and returns.
fn test(stop: Stop) -> Vec<sock_filter> {
    // Both ABIs are little-endian: the low half of argument n is at ARGS + 8n.
    let low = |arg: u8| load(ARGS + 8 * u32::from(arg));
    let high = |arg: u8| load(ARGS + 8 * u32::from(arg) + 4);
    match stop {
        Stop::Always => vec![ret(NOTIFY)],
        Stop::AnyBit { arg, mask } => {
            vec![
                low(arg),
                op(BPF_JMP | BPF_JSET | BPF_K, 0, 1, mask),
                ret(NOTIFY),
                ret(ALLOW),
            ]
        }
        Stop::NotNull { arg } => vec![
            low(arg),
            op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0),
            ret(NOTIFY),
            high(arg),
            op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0),
            ret(NOTIFY),
            ret(ALLOW),
        ],
        Stop::OneOf { arg, values } => {
            let mut code = vec![low(arg)];
            for value in values {
                code.push(op(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, *value));
                code.push(ret(NOTIFY));
            }
            code.push(ret(ALLOW));
            code
        }
    }
}
