//! effigy: the command line.
fn main() {}
