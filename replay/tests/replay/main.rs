//! Replay of journals that are written here, event by event, so that they say exactly what a test is about.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attack;
mod crash;
mod partial;
mod recording;
mod speed;
