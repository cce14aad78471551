//! Prints docs/SYSCALLS.md: `cargo run -p effigy-tracer --example syscalls > docs/SYSCALLS.md`.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(effigy_tracer::syscalls::document().as_bytes())
}
