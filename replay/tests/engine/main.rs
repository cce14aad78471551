//! The engine against real overlay layers: the three trees of bare run, commit and undo; crashes; attacks.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests work on trees of their own and fail by panicking"
)]

mod attack;
mod conflict;
mod crash;
mod fault;
mod force;
mod law;
mod random;
mod show;
mod speed;
mod world;
