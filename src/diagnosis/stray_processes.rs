//! Finds processes that agents left behind: they have this daemon's mark, but belong to no living agent.

use std::collections::BTreeSet;

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};

use crate::agent::process::SpawnMark;
use crate::agent::sweep::{self, SweepTarget};
use crate::conversation::services::Services;

/// Reports all of them in one diagnostic, or that there are none. Only Linux shows marks; elsewhere it reports
/// nothing.
pub(super) fn check_stray_processes(services: &Services) -> Vec<Diagnostic> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    // A process that started or ended during one scan is missing in the other.
    let (Some(first), Some(second)) = (find_stray_processes(services), find_stray_processes(services)) else {
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
    let named: Vec<String> = left
        .iter()
        .map(|pid| format!("{pid} ({})", process_name(*pid)))
        .collect();
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

/// Returns processes with this daemon's mark that belong to no live agent. `None` if that cannot be decided.
fn find_stray_processes(services: &Services) -> Option<BTreeSet<u32>> {
    // Scan the processes before reading the records.
    let instance = services.pool.instance().clone();
    let ours = sweep::find(&SweepTarget::instance(instance, Vec::new()));
    if services.pool.is_starting() {
        return None;
    }
    let unended = services.pool.remaining_pids();
    // If this fails, the store reports it.
    let records = services.store.processes().ok()?;
    let kept = records.iter().filter(|record| unended.contains(&record.pid));
    let marks = kept.filter_map(|record| SpawnMark::parse(&record.mark)).collect();
    let used: BTreeSet<u32> = sweep::find(&SweepTarget::marked(marks)).into_iter().collect();
    Some(ours.into_iter().filter(|pid| !used.contains(pid)).collect())
}

fn process_name(pid: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => name.trim().to_owned(),
        // It has just ended.
        Err(_) => "ended".to_owned(),
    }
}
