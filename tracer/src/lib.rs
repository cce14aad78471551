//! effigy-tracer
