//! Checks the daemon that answers and its version, and looks for other daemons of this user.

use std::path::Path;

use bridge_protocol::PROTOCOL_VERSION;
use bridge_protocol::daemon::DaemonStatus;
use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};

use crate::cli::connect::{Daemon, DaemonConnector};
use crate::cli::humanize;
use crate::cli::problem::{DOCTOR_HINT, Problem};
use crate::cli::start;
use crate::paths::lock_holder::{belongs_to_daemon, data_folder_of};
use crate::paths::shell_word;

/// How to replace the daemon.
const RESTART_HINT: &str = "sessionctl stop (running turns end; the next command starts the daemon again)";

/// Reports that no daemon answers, and why. Also reports which daemon uses the data folder, if the reason does not name it.
pub(super) fn no_daemon(problem: &Problem, reach: &DaemonConnector) -> Vec<Diagnostic> {
    let what = problem.message.as_deref().unwrap_or("no daemon answers");
    let next = problem.hint.as_deref().unwrap_or_default();
    let next = match next.trim_start_matches(DOCTOR_HINT).trim_start_matches("; ") {
        "" => "run sessiond in a terminal to see why",
        next => next,
    };
    let none = Diagnostic::new(DiagnosticKind::Daemon, Severity::Error, what).next(next);
    // Check the lock and not the process, which exists for an instant after it has released the lock.
    if problem.pid().is_some() || !start::is_lock_held(&reach.paths) {
        return vec![none];
    }
    let socket = reach.last_lock().unwrap_or_default().socket;
    let holder = reach.lock_holder_pid(&socket);
    let who = holder.map_or_else(|| "a daemon".to_owned(), |pid| format!("process {pid}"));
    let what = format!("{who} uses the data folder and listens on {}", socket.display());
    let is_elsewhere = reach.is_socket_explicit && socket != reach.paths.bridge_socket;
    let next = match holder {
        _ if is_elsewhere => "omit --socket and unset SESSIOND_SOCKET".to_owned(),
        Some(pid) => {
            format!("if it is starting or stopping, try again in a moment; otherwise end it: kill {pid}")
        }
        None => "if it is starting or stopping, try again in a moment; it may run in a container".to_owned(),
    };
    let held = Diagnostic::new(DiagnosticKind::Daemon, Severity::Note, what).next(next);
    let held = match holder {
        Some(pid) => held.fact("pid", pid),
        None => held,
    };
    vec![none, held]
}

/// Reports on the daemon that answers.
pub(super) fn answering_daemon(
    status: &DaemonStatus,
    reach: &DaemonConnector,
    daemon: &Daemon,
) -> Vec<Diagnostic> {
    let (own, pid, version) = (env!("CARGO_PKG_VERSION"), status.pid, &status.version);
    let age = humanize::duration(i64::try_from(status.uptime_seconds).unwrap_or(i64::MAX));
    let who = format!("sessiond {version} runs as process {pid}, for {age}");
    let protocol = status.protocol_version;
    let (severity, what) = match () {
        () if protocol != PROTOCOL_VERSION => {
            let what = format!("{who}, and speaks protocol {protocol}, not {PROTOCOL_VERSION}");
            (Severity::Error, what)
        }
        () if version != own => (Severity::Warning, format!("{who}; this sessionctl is {own}")),
        () if is_program_replaced(pid) => {
            (Severity::Warning, format!("{who}; its program has been replaced"))
        }
        () => (Severity::Ok, who),
    };
    let one = Diagnostic::new(DiagnosticKind::Daemon, severity, what)
        .fact("pid", pid)
        .fact("version", version.clone());
    let mut found = vec![match severity {
        Severity::Ok => one,
        _ => one.next(RESTART_HINT),
    }];
    if reach
        .last_lock()
        .and_then(|lock| lock.pid)
        .is_some_and(|last| last != pid)
    {
        let what = format!("the daemon that answers has another folder: {}", status.home);
        found.push(
            Diagnostic::new(DiagnosticKind::Daemon, Severity::Warning, what)
                .next("omit --socket and unset SESSIOND_SOCKET, or name its folder with --home"),
        );
    } else if daemon.has_other_config(&reach.paths.config_file) {
        let what = "the daemon was started with another configuration file";
        found.push(
            Diagnostic::new(DiagnosticKind::Configuration, Severity::Warning, what)
                .about(reach.paths.config_file.to_string_lossy())
                .next(RESTART_HINT),
        );
    }
    found
}

/// Whether the file that a process runs was deleted, for example by an update.
fn is_program_replaced(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|program| program.to_string_lossy().ends_with(" (deleted)"))
}

/// Reports processes left behind by agents of a dead daemon. They are found by a variable in their environment: the first entry
/// with this name is `SESSIOND_MARK=INSTANCE:SPAWN`, where `INSTANCE` is the content of the file `instance` in the data folder.
pub(super) fn leftover_processes(data: &Path) -> Vec<Diagnostic> {
    let Ok(instance) = std::fs::read_to_string(data.join(crate::paths::names::INSTANCE)) else {
        return Vec::new();
    };
    let mark = format!("SESSIOND_MARK={}:", instance.trim());
    let is_marked = |pid: u32| {
        // The environment of another user's process cannot be read.
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut entries = environment.split(|byte| *byte == 0);
        entries.any(|entry| entry.starts_with(mark.as_bytes()))
    };
    let own = std::process::id();
    // Leave out processes of running daemons: a daemon that an agent started has inherited the mark but is not part of that
    // agent, and a daemon on a copy of the data folder marks its agents in the same way.
    let pids: Vec<u32> = own_processes()
        .filter(|pid| *pid != own && is_marked(*pid) && !belongs_to_daemon(*pid, is_marked))
        .collect();
    if pids.is_empty() {
        return Vec::new();
    }
    let named: Vec<String> = pids.iter().map(ToString::to_string).collect();
    let what = format!("agents of a dead daemon are still running: {}", named.join(", "));
    vec![
        Diagnostic::new(DiagnosticKind::LeftOver, Severity::Warning, what)
            .next("sessionctl start (the next daemon ends them)")
            .fact("pids", pids),
    ]
}

/// This user's processes, on systems with Linux's `/proc`.
fn own_processes() -> impl Iterator<Item = u32> {
    let uid = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        use std::os::unix::fs::MetadataExt;
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let is_own = entry.metadata().is_ok_and(|metadata| metadata.uid() == uid);
        is_own.then_some(pid)
    })
}

/// Reports other daemons of this user, on systems with Linux's `/proc`.
pub(super) fn other_daemons(own: Option<u32>) -> Vec<Diagnostic> {
    let pids = own_processes().filter(|pid| Some(*pid) != own);
    pids.filter_map(|pid| Some(other_daemon(pid, &data_folder_of(pid)?)))
        .collect()
}

fn other_daemon(pid: u32, data: &Path) -> Diagnostic {
    let what = format!("process {pid} is a daemon of the folder {}", data.display());
    let found = Diagnostic::new(DiagnosticKind::OtherDaemon, Severity::Note, what)
        .fact("pid", pid)
        .fact("folder", data.to_string_lossy());
    // With `--home`, the data folder is called `data`; otherwise it has the program's name.
    let home = data.parent().filter(|_| data.ends_with("data"));
    match home {
        Some(home) => {
            let home = shell_word(&home.to_string_lossy());
            found.next(format!("to use it: sessionctl --home {home} status"))
        }
        None => found.next("commands without --home and SESSIOND_HOME use it, if XDG_DATA_HOME is the same"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_daemon_is_reported_with_its_folder() {
        let table = [
            (
                "/my home/data",
                "of the folder /my home/data",
                "to use it: sessionctl --home '/my home'",
            ),
            // The data folder if no home is named.
            (
                "/home/u/.local/share/sessiond",
                "of the folder /home/u/.local/share/sessiond",
                "commands without --home",
            ),
        ];
        for (data, what, next) in table {
            let found = other_daemon(7, Path::new(data));
            assert!(found.message.contains(what), "{found:?}");
            assert!(found.next_step.as_deref().unwrap().starts_with(next), "{found:?}");
            let folder = found.data.get("folder").and_then(serde_json::Value::as_str);
            assert_eq!(folder, Some(data), "{found:?}");
        }
    }
}
