//! How things are shown: names without control characters, colours only where they are wanted, sizes, ages and tables.

pub(crate) mod colour;
pub(crate) mod json;
pub(crate) mod name;
pub(crate) mod quantity;
pub(crate) mod table;
