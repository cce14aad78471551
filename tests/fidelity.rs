//! What runs inside is told the truth: calls answer as they do outside, what is recorded is what happened, and programs do not notice.

mod contents;
mod crowds;
mod matrix;
mod order;
mod scripts;
