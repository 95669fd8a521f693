//! The command line's entry point: only dispatch.

fn main() {}
