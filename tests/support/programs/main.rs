//! Programs that tests start as processes; the first argument selects one.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a helper of tests fails by panicking, and its output is what tests read"
)]

#[cfg(target_os = "linux")]
mod answered_calls;
#[cfg(target_os = "linux")]
mod fault_proxy;
#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../faults/kinds.rs"]
mod kinds;
#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../random.rs"]
mod random;
mod scripted_agent;
mod scripted_names;
mod store;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((program, [])) if program == "scripted-agent" => scripted_agent::run(),
        #[cfg(target_os = "linux")]
        Some((program, rest)) if program == "answered-calls" => answered_calls::run(rest),
        #[cfg(target_os = "linux")]
        Some((program, rest)) if program == "fault-proxy" => fault_proxy::run(rest),
        Some((program, [folder, cwd, upstream, ids @ ..])) if program == "store-fill" => {
            store::fill(folder.as_ref(), cwd, upstream, ids);
        }
        Some((program, [folder])) if program == "store-writer" => store::write(folder.as_ref()),
        Some((program, [folder, acknowledged])) if program == "store-contents" => {
            store::print(folder.as_ref(), acknowledged.parse().unwrap());
        }
        _ => panic!("unknown program or arguments: {arguments:?}"),
    }
}
