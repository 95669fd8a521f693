//! Processes that agents have left behind: marked as of this daemon, and of no agent that lives.

use std::collections::BTreeSet;

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};

use crate::agent::process::SpawnMark;
use crate::agent::sweep::{self, SweepTarget};
use crate::conversation::services::Services;

/// All of them in one, or that there are none. Other systems than Linux show no marks: there nothing is said.
pub(super) fn processes(services: &Services) -> Vec<Diagnostic> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    // One that has ended within a look, or that began in it, is not there in the next.
    let (Some(first), Some(second)) = (strays(services), strays(services)) else {
        let what = "left-over processes were not checked because an agent is starting";
        return vec![
            Diagnostic::new(DiagnosticKind::LeftOver, Severity::Note, what).next("try again in a moment"),
        ];
    };
    let left: Vec<u32> = first.intersection(&second).copied().collect();
    if left.is_empty() {
        let what = "no agent has left a process behind";
        return vec![Diagnostic::new(DiagnosticKind::LeftOver, Severity::Ok, what)];
    }
    let named: Vec<String> = left.iter().map(|pid| format!("{pid} ({})", name(*pid))).collect();
    let what = format!(
        "left-over processes of agents that have ended: {}",
        named.join(", ")
    );
    vec![
        Diagnostic::new(DiagnosticKind::LeftOver, Severity::Warning, what)
            .next("the next start of the daemon ends them: sessionctl stop, then any command")
            .fact("pids", left),
    ]
}

/// Processes of this daemon's mark that belong to no agent that is kept; none where that cannot be said.
fn strays(services: &Services) -> Option<BTreeSet<u32>> {
    // First who is there, then who is known.
    let instance = services.pool.instance().clone();
    let ours = sweep::find(&SweepTarget::instance(instance, Vec::new()));
    if services.pool.is_starting() {
        return None;
    }
    let unended = services.pool.unended();
    // Where it fails the store tells of itself.
    let records = services.store.processes().ok()?;
    let kept = records.iter().filter(|record| unended.contains(&record.pid));
    let marks = kept.filter_map(|record| SpawnMark::parse(&record.mark)).collect();
    let used: BTreeSet<u32> = sweep::find(&SweepTarget::marked(marks)).into_iter().collect();
    Some(ours.into_iter().filter(|pid| !used.contains(pid)).collect())
}

fn name(pid: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => name.trim().to_owned(),
        // It has just ended.
        Err(_) => "gone".to_owned(),
    }
}
