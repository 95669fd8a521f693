//! The daemon that answers, whether it fits this program, and others of this user.

use std::path::Path;
use std::time::SystemTime;

use bridge_protocol::PROTOCOL_VERSION;
use bridge_protocol::daemon::DaemonStatus;
use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};
use jiff::{SignedDuration, Timestamp};

use crate::cli::connect::{Daemon, Reach};
use crate::cli::problem::Problem;
use crate::cli::words;

/// How to have another daemon.
const AGAIN: &str = "sessionctl stop, and the next command starts one";

/// That there is none, and why.
pub(super) fn none(problem: &Problem) -> Diagnostic {
    let what = problem.message.as_deref().unwrap_or("no daemon answers");
    let found = Diagnostic::new(DiagnosticKind::Daemon, Severity::Error, what);
    match &problem.hint {
        Some(hint) => found.next(hint.clone()),
        None => found.next("sessiond in a terminal shows why it does not start"),
    }
}

/// One that has the data folder all the same: it does not answer yet, or not any more.
pub(super) fn coming_or_going(last: Option<u32>) -> Vec<Diagnostic> {
    let running = last.filter(|pid| is_daemon(&command_line(*pid)));
    let found = running.map(|pid| {
        let what = format!(
            "process {pid} has the data folder: it is starting or ending, or listens on another socket"
        );
        Diagnostic::new(DiagnosticKind::Daemon, Severity::Note, what)
            .next("try again in a moment")
            .fact("pid", pid)
    });
    found.into_iter().collect()
}

/// The words with which a process was started; none where there is none, or where it cannot be seen.
fn command_line(pid: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

/// The one that answers.
pub(super) fn this(status: &DaemonStatus, reach: &Reach, daemon: &Daemon) -> Vec<Diagnostic> {
    // The status tells whole seconds only; a daemon with another lock file has only those.
    let locked = reach.last_daemon().filter(|(pid, _)| *pid == status.pid);
    let running = SignedDuration::from_secs(i64::try_from(status.uptime_seconds).unwrap_or(i64::MAX));
    let began = locked
        .and_then(|(_, began)| began)
        .or_else(|| Timestamp::now().checked_sub(running).ok());
    let age = began.map_or_else(String::new, |began| {
        format!(", for {}", words::age(began, Timestamp::now()))
    });
    let own = env!("CARGO_PKG_VERSION");
    let of = |severity, what: String| {
        Diagnostic::new(DiagnosticKind::Daemon, severity, what)
            .fact("pid", status.pid)
            .fact("version", status.version.clone())
    };
    let who = format!("sessiond {} runs as process {}{age}", status.version, status.pid);
    let mut found = vec![if status.protocol_version != PROTOCOL_VERSION {
        of(
            Severity::Error,
            format!(
                "{who}, and speaks protocol {}, not {PROTOCOL_VERSION}",
                status.protocol_version
            ),
        )
        .next(AGAIN)
    } else if status.version != own {
        of(Severity::Warning, format!("{who}; this sessionctl is {own}")).next(AGAIN)
    } else if is_replaced(status.pid) {
        of(
            Severity::Warning,
            format!("{who}; its program was replaced since"),
        )
        .next(AGAIN)
    } else {
        of(Severity::Ok, who)
    }];
    let config = &reach.paths.config_file;
    let of = |what: &str| {
        Diagnostic::new(DiagnosticKind::Configuration, Severity::Warning, what)
            .about(config.to_string_lossy())
            .next(AGAIN)
    };
    if daemon.has_other_config(config) {
        found.push(of("the daemon was started with another configuration file"));
    } else if began.is_some_and(|began| is_newer(config, began.into())) {
        found.push(of(
            "was changed since the daemon started, which has not read it again",
        ));
    }
    found
}

/// Whether a file was written to after this moment.
fn is_newer(path: &Path, began: SystemTime) -> bool {
    let written = path.metadata().and_then(|metadata| metadata.modified());
    written.is_ok_and(|written| written > began)
}

/// Whether the file that a process runs has gone, as after an update.
fn is_replaced(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|program| program.to_string_lossy().ends_with(" (deleted)"))
}

/// Other daemons of this user, where the system shows processes as Linux does.
pub(super) fn others(own: Option<u32>) -> Vec<Diagnostic> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let uid = rustix::process::geteuid().as_raw();
    let pids = entries.flatten().filter_map(|entry| {
        use std::os::unix::fs::MetadataExt;
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let is_own = entry.metadata().is_ok_and(|metadata| metadata.uid() == uid);
        (is_own && Some(pid) != own).then_some(pid)
    });
    let found = pids.filter_map(|pid| {
        let words = command_line(pid);
        is_daemon(&words).then(|| {
            let what = format!(
                "process {pid} is a daemon with a folder of its own: {}",
                words.join(" ")
            );
            Diagnostic::new(DiagnosticKind::OtherDaemon, Severity::Note, what)
                .next("--home, SESSIOND_HOME and SESSIOND_SOCKET say to which one a command talks")
                .fact("pid", pid)
        })
    });
    found.collect()
}

/// Whether a command line is that of a daemon: `sessiond`, or a program of ours that was told to be one.
fn is_daemon(words: &[String]) -> bool {
    let program = words.first().and_then(|word| Path::new(word).file_name());
    match program.and_then(|name| name.to_str()) {
        Some("sessiond") => !words
            .iter()
            .any(|word| ["--help", "-h", "--version", "-V"].contains(&word.as_str())),
        Some("sessionctl") => words.get(1).is_some_and(|word| word == "daemon"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_daemon_is_known_by_its_command_line() {
        let table = [
            ("/usr/bin/sessiond", true),
            ("sessiond --home /tmp/x", true),
            ("sessiond --version", false),
            ("/usr/bin/sessionctl daemon --ready-on-stdin", true),
            ("sessionctl doctor", false),
            ("vi sessiond", false),
            ("", false),
        ];
        for (line, expected) in table {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(is_daemon(&words), expected, "{line}");
        }
    }

    #[test]
    fn a_configuration_is_newer_only_where_it_was_written_later() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config.toml");
        assert!(!is_newer(&path, SystemTime::UNIX_EPOCH));
        std::fs::write(&path, "").unwrap();
        let written = path.metadata().unwrap().modified().unwrap();
        assert!(!is_newer(&path, written));
        assert!(is_newer(
            &path,
            written.checked_sub(Duration::from_secs(1)).unwrap()
        ));
    }
}
