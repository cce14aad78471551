//! End-to-end tests of the built `effigy`: one binary, every test with a directory, a home and a store of its own and a cleared
//! environment, as root and as an ordinary user where the test itself runs as root.

#![expect(
    clippy::disallowed_methods,
    reason = "a test shows what it saw as well as it can"
)]

mod harness;
mod trees;

mod archive;
mod confined;
mod confinement;
mod conflicts;
mod effects;
mod fidelity;
mod files;
mod filters;
mod first_day;
mod held_back;
mod hosts;
mod in_use;
mod killed;
mod law;
mod programs;
mod replay;
mod report;
mod resuming;
mod sessions;
mod sockets;
mod stacking;
mod status;
mod store;
mod surroundings;
mod terminal;
mod try_face;
mod views;
