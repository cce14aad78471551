//! What fuzzing the reader has found worth keeping is read again, without the fuzzer.

#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use effigy_journal::Reader;
use std::fs;
use std::path::Path;

#[test]
fn no_input_of_the_corpus_stops_the_reader() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/reader");
    let mut inputs = 0;
    for input in fs::read_dir(corpus).unwrap() {
        let bytes = fs::read(input.unwrap().path()).unwrap();
        // The first byte chooses between a journal as it stands (even) and contents that the fuzz target puts into frames.
        let Some((0, rest)) = bytes.split_first().map(|(choice, rest)| (choice % 2, rest)) else {
            continue;
        };
        let Ok(mut reader) = Reader::open(rest) else {
            continue;
        };
        inputs += 1;
        let mut last = 0;
        while let Ok(Some(_)) = reader.next_entry() {
            let seq = reader.last().0;
            assert!(seq >= last, "event numbers fell from {last} to {seq}");
            last = seq;
        }
    }
    assert!(inputs > 20, "only {inputs} inputs of the corpus are journals");
}
