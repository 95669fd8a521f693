//! The daemon's entry point: only dispatch.

fn main() {}
