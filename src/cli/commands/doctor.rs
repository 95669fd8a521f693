//! `doctor`: diagnoses problems with the daemon and its environment, and suggests fixes.
//!
//! It checks what is visible from outside the daemon, so that it also helps if no daemon starts. The daemon checks the rest.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use bridge_protocol::daemon::DaemonStatus;
use bridge_protocol::diagnosis::{Diagnosis, Diagnostic, DiagnosticKind, Severity};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{PROTOCOL_VERSION, method};
use clap::Args;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::Context;
use crate::cli::advice::with_daemon_options;
use crate::cli::connect::{Daemon, DaemonConnector};
use crate::cli::humanize;
use crate::cli::output::{ATTENTION, BAD, DIM, GOOD, Look, one_line};
use crate::cli::problem::{CommandResult, DOCTOR_HINT, Exit, Problem, READ_ONLY};
use crate::cli::start;
use crate::paths::lock_holder::{belongs_to_daemon, data_folder_of};
use crate::paths::ownership::{Role, Untrusted};
use crate::paths::{Paths, ownership, shell_word};

/// Diagnose problems and suggest fixes
///
/// Checks the folders, the configuration, this daemon and other daemons of this user, the store, free disk space,
/// leftover processes, and each agent: whether it starts, its version and features, its login, its transcripts and how
/// long it keeps them. No conversation is changed. The daemon is started unless --no-start is given.
///
/// Exits with 1 on an error and with 3 if no daemon runs. Warnings do not change the exit code.
#[derive(Debug, Args)]
pub(in crate::cli) struct Doctor {
    /// Do not start agents; check only those that are running
    #[arg(long)]
    pub(in crate::cli) no_agents: bool,
}

/// How long all checks together may take. They start agents, each with its own limit.
const DIAGNOSIS_LIMIT: Duration = Duration::from_secs(300);

/// Checks everything and prints each finding as soon as it is known. Exits with 1 on an error, and with 3 if no daemon runs.
pub(in crate::cli) async fn doctor(context: &mut Context<'_>, options: Doctor) -> CommandResult {
    let mut report = Report::default();
    report.add(context, check_folders(&context.connector.paths))?;
    let last = context.connector.last_lock().and_then(|lock| lock.pid);
    let reached = async {
        // Connecting has its own limits, because it waits for a daemon that is starting.
        let daemon = context.connector.connect().await?;
        let status = daemon.call(method::Status::default()).await?;
        CommandResult::Ok((daemon, status))
    };
    let (daemon, status) = match reached.await {
        Ok(reached) => reached,
        Err(problem) => {
            report.add(
                context,
                full_disk(&context.connector.paths.data).into_iter().collect(),
            )?;
            let mut found = no_daemon(&problem, &context.connector);
            if found.len() == 1 && problem.pid().is_none() {
                found.extend(leftover_processes(&context.connector.paths.data));
            }
            report.add(context, found)?;
            report.add(context, other_daemons(last))?;
            report.end(context)?;
            return Err(Problem::silent(Exit::NoDaemon));
        }
    };
    report.add(context, answering_daemon(&status, &context.connector, &daemon))?;
    report.add(context, other_daemons(Some(status.pid)))?;
    if !options.no_agents {
        context
            .output
            .note("checking the agents, which may take half a minute")?;
    }
    // A PATH that is not UTF-8 cannot be sent.
    let path = std::env::var("PATH").ok();
    let asking = daemon.call(method::Diagnose {
        agents: Some(!options.no_agents),
        path,
    });
    let answer = tokio::time::timeout(DIAGNOSIS_LIMIT, asking).await;
    let answer = answer.unwrap_or_else(|_| {
        let what = format!("no answer within {} s", DIAGNOSIS_LIMIT.as_secs());
        Err(Problem::no_daemon(what).hint("its log may say why; try again in a moment"))
    });
    match answer {
        Ok(diagnosis) => report.add(context, diagnosis.diagnostics)?,
        Err(problem) => {
            let why = problem.message.as_deref().unwrap_or("the connection ended");
            let what = format!("the store and the agents were not checked: {why}");
            let unchecked = Diagnostic::new(DiagnosticKind::Daemon, Severity::Error, what)
                .next(problem.hint.as_deref().unwrap_or("try again"))
                .fact("pid", status.pid);
            report.add(context, vec![unchecked])?;
        }
    }
    match report.end(context)? {
        0 => Ok(()),
        _ => Err(Problem::silent(Exit::Failed)),
    }
}

/// The findings so far.
#[derive(Default)]
struct Report {
    diagnosis: Diagnosis,
}

impl Report {
    fn add(&mut self, context: &mut Context<'_>, found: Vec<Diagnostic>) -> CommandResult {
        let (look, options) = (context.output.look, context.output.daemon_options.clone());
        for line in found.iter().flat_map(|one| lines(one, look, &options)) {
            context.output.verbatim(&line)?;
        }
        self.diagnosis.diagnostics.extend(found);
        Ok(())
    }

    /// Prints the summary; returns the number of errors.
    fn end(self, context: &mut Context<'_>) -> CommandResult<u64> {
        let count = |is_meant: fn(Severity) -> bool| {
            let all = self.diagnosis.diagnostics.iter();
            all.filter(|one| is_meant(one.severity)).count() as u64
        };
        // Count unknown severities as errors, because they may be worse.
        let errors = count(|severity| severity >= Severity::Error);
        let warnings = count(|severity| severity == Severity::Warning);
        if context.output.json {
            let answer = serde_json::value::to_raw_value(&self.diagnosis)
                .map_err(|error| Problem::failed(error.to_string()))?;
            context.output.raw(&RawJson::new(answer))?;
        } else {
            context.output.line(&findings_summary(errors, warnings))?;
        }
        Ok(errors)
    }
}

fn findings_summary(errors: u64, warnings: u64) -> String {
    match (errors, warnings) {
        (0, 0) => "no problems found".to_owned(),
        _ => format!(
            "{}, {}",
            humanize::count(errors, "error", "errors"),
            humanize::count(warnings, "warning", "warnings")
        ),
    }
}

/// On a narrower terminal, the text of a finding is below its severity and kind.
const COLUMNS_FOR_ONE_LINE: usize = 60;

/// The lines of one finding, and below it what to do. `options` are added to its commands: see [`with_daemon_options`].
fn lines(one: &Diagnostic, look: Look, options: &str) -> Vec<String> {
    let (word, style) = match one.severity {
        Severity::Ok => ("ok", GOOD),
        Severity::Note => ("note", DIM),
        Severity::Warning => ("warning", ATTENTION),
        _ => ("error", BAD),
    };
    let about = match &one.subject {
        Some(subject) => format!("{}: ", one_line(subject)),
        None => String::new(),
    };
    let kind = look.paint(DIM, &format!("{:<12}", name(one.kind)));
    let kind = format!("{}  {kind}", look.paint(style, &format!("{word:<7}")));
    let text = format!("{about}{}", one_line(&one.message));
    let is_narrow = look.columns.is_some_and(|columns| columns < COLUMNS_FOR_ONE_LINE);
    let (first, indent) = match is_narrow {
        true => (
            format!("{}\n{}", kind.trim_end(), look.wrap(&format!("  {text}"), 2)),
            2,
        ),
        false => (look.wrap(&format!("{kind}  {text}"), 23), 9),
    };
    let next = one
        .next_step
        .iter()
        .map(|step| format!("{:<indent$}{} {}", "", look.sign("→", "->"), one_line(step)));
    let next = next.map(|step| look.wrap(&with_daemon_options(&step, options), indent + 2));
    std::iter::once(first).chain(next).collect()
}

fn name(kind: DiagnosticKind) -> String {
    match kind {
        DiagnosticKind::Configuration => "config".to_owned(),
        DiagnosticKind::Room => "disk".to_owned(),
        DiagnosticKind::Quirk => "good to know".to_owned(),
        other => humanize::wire_name(other),
    }
}

/// How to replace the daemon.
const RESTART_HINT: &str = "sessionctl stop (running turns end; the next command starts the daemon again)";

/// Reports that no daemon answers, and why. Also reports which daemon uses the data folder, if the reason does not name it.
fn no_daemon(problem: &Problem, reach: &DaemonConnector) -> Vec<Diagnostic> {
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
fn answering_daemon(status: &DaemonStatus, reach: &DaemonConnector, daemon: &Daemon) -> Vec<Diagnostic> {
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
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|program| program.to_string_lossy().ends_with(" (deleted)"))
}

/// Reports processes left behind by agents of a dead daemon. They are found by a variable in their environment: the first entry
/// with this name is `SESSIOND_MARK=INSTANCE:SPAWN`, where `INSTANCE` is the content of the file `instance` in the data folder.
fn leftover_processes(data: &Path) -> Vec<Diagnostic> {
    let Ok(instance) = fs::read_to_string(data.join(crate::paths::names::INSTANCE)) else {
        return Vec::new();
    };
    let mark = format!("SESSIOND_MARK={}:", instance.trim());
    let is_marked = |pid: u32| {
        // The environment of another user's process cannot be read.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
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
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let is_own = entry.metadata().is_ok_and(|metadata| metadata.uid() == uid);
        is_own.then_some(pid)
    })
}

/// Reports other daemons of this user, on systems with Linux's `/proc`.
fn other_daemons(own: Option<u32>) -> Vec<Diagnostic> {
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
        None => {
            let parent = shell_word(&data.parent().unwrap_or(data).to_string_lossy());
            found.next(format!(
                "to use it: omit --home, unset SESSIOND_HOME, and set XDG_DATA_HOME={parent}"
            ))
        }
    }
}

/// Permissions of other users, which a private folder must not grant.
const OTHERS_MODE: u32 = 0o077;

/// The minimum free space. With less, a starting daemon cannot write its first files.
const LEAST_BYTES: u64 = 1 << 20;

/// The minimum number of free files.
const LEAST_FILES: u64 = 10;

/// Checks each folder. The daemon checks the content of the configuration.
fn check_folders(paths: &Paths) -> Vec<Diagnostic> {
    let untrusted = ownership::untrusted(paths);
    let mut found: Vec<Diagnostic> = untrusted.iter().map(untrusted_folder).collect();
    let folder = |path: &Path, what| {
        let is_refused = untrusted.iter().any(|untrusted| untrusted.culprit == path);
        (!is_refused).then(|| check_folder(path, what))
    };
    found.extend(folder(&paths.data, "data"));
    found.extend(far_away(&paths.data));
    found.extend(folder(&paths.runtime, "sockets"));
    // The runtime folder is often on a separate file system in memory. A daemon that answers checks the disk of the data.
    if device(&paths.runtime) != device(&paths.data) {
        found.extend(full_disk(&paths.runtime));
    }
    // Folders below the data folder are only as accessible as it is.
    if !paths.log.starts_with(&paths.data) {
        found.extend(folder(&paths.log, "log"));
    }
    found
}

/// Reports a folder that another user owns or can change. No daemon starts with it.
fn untrusted_folder(untrusted: &Untrusted) -> Diagnostic {
    let kind = match untrusted.role {
        Role::Configuration => DiagnosticKind::Configuration,
        _ => DiagnosticKind::Folder,
    };
    Diagnostic::new(kind, Severity::Error, untrusted.to_string())
        .about(untrusted.culprit.to_string_lossy())
        .next(untrusted.hint("sessionctl"))
        .fact("owner", untrusted.owner_uid)
        .fact("mode", format!("{:03o}", untrusted.mode))
}

/// The folder, or the nearest one above it that exists.
fn nearest_existing(path: &Path) -> Option<&Path> {
    path.ancestors().find(|place| place.exists())
}

/// The file system that contains a folder, or will contain it.
fn device(path: &Path) -> Option<u64> {
    Some(nearest_existing(path)?.metadata().ok()?.dev())
}

/// Reports that a folder's disk is full.
fn full_disk(path: &Path) -> Option<Diagnostic> {
    let disk = rustix::fs::statvfs(nearest_existing(path)?).ok()?;
    let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
    is_full((disk.f_blocks, free_bytes), (disk.f_files, disk.f_favail)).then(|| {
        Diagnostic::new(DiagnosticKind::Room, Severity::Error, "its disk is full")
            .about(path.to_string_lossy())
            .next("free some space there; without it, the daemon may not start")
    })
}

/// Whether a file system is full. `blocks` and `files` are totals; a total of 0 means that the file system does not count them.
fn is_full((blocks, free_bytes): (u64, u64), (files, free_files): (u64, u64)) -> bool {
    blocks > 0 && free_bytes < LEAST_BYTES || files > 0 && free_files < LEAST_FILES
}

fn check_folder(path: &Path, what: &str) -> Diagnostic {
    let elsewhere = "or use another folder with --home DIR";
    let chmod = || format!("chmod 700 {}", shell_word(&path.to_string_lossy()));
    let is_usable = |path: &Path, how| access(path, how).is_ok();
    let (severity, found, next) = match fs::metadata(path) {
        _ if is_read_only(path) => (
            Severity::Error,
            format!("cannot be written: {READ_ONLY}"),
            format!("make it writable (mount -o remount,rw), {elsewhere}"),
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match nearest_existing(path) {
            Some(above) if !is_usable(above, Access::WRITE_OK | Access::EXEC_OK) => (
                Severity::Error,
                format!("cannot be created: {} is not writable", above.display()),
                format!("let this user write there, {elsewhere}"),
            ),
            _ => (
                Severity::Note,
                "does not exist yet; the daemon creates it".to_owned(),
                String::new(),
            ),
        },
        Err(error) => (
            Severity::Error,
            format!("cannot be read: {error}"),
            format!("check the permissions of the folders above it, {elsewhere}"),
        ),
        Ok(metadata) if !metadata.is_dir() => (
            Severity::Error,
            "is a file, not a folder".to_owned(),
            format!("move it away, {elsewhere}"),
        ),
        Ok(_) if !is_usable(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) => (
            Severity::Error,
            "is not writable".to_owned(),
            format!("{}, {elsewhere}", chmod()),
        ),
        Ok(metadata) if metadata.mode() & OTHERS_MODE != 0 => (
            Severity::Warning,
            format!("is open to others (mode {:o})", metadata.mode() & 0o777),
            chmod(),
        ),
        Ok(_) => (Severity::Ok, "is private to you".to_owned(), String::new()),
    };
    let found = format!("the folder for {what} {found}");
    let found = Diagnostic::new(DiagnosticKind::Folder, severity, found).about(path.to_string_lossy());
    match next.is_empty() {
        true => found,
        false => found.next(next),
    }
}

/// Whether the folder's file system is mounted read-only.
fn is_read_only(path: &Path) -> bool {
    nearest_existing(path).is_some_and(|found| access(found, Access::WRITE_OK) == Err(Errno::ROFS))
}

/// Reports data on a network file system, on which locks and syncs may not work.
#[cfg(target_os = "linux")]
fn far_away(data: &Path) -> Option<Diagnostic> {
    let disk = rustix::fs::statfs(nearest_existing(data)?).ok()?;
    if !is_network(disk.f_type) {
        return None;
    }
    let what = "is on a network file system, where locks and syncs may not work";
    Some(
        Diagnostic::new(DiagnosticKind::Folder, Severity::Warning, what)
            .about(data.to_string_lossy())
            .next("use a folder on a local disk, with --home DIR or XDG_DATA_HOME"),
    )
}

/// Not checked on other systems, which identify their file systems differently.
#[cfg(not(target_os = "linux"))]
fn far_away(_data: &Path) -> Option<Diagnostic> {
    None
}

/// Whether this is a network file system, by its number in the kernel's `magic.h`.
#[cfg(target_os = "linux")]
fn is_network(magic: impl Into<i64>) -> bool {
    const NFS: i64 = 0x6969;
    const SMB: [i64; 3] = [0x517b, 0xff53_4d42, 0xfe53_4d42];
    const PLAN_9_AND_CEPH: [i64; 2] = [0x0102_1997, 0x00c3_6400];
    let magic = magic.into();
    magic == NFS || SMB.contains(&magic) || PLAN_9_AND_CEPH.contains(&magic)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
                "to use it: omit --home",
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

    fn severity(path: &Path) -> (Severity, bool) {
        let found = check_folder(path, "data");
        (found.severity, found.next_step.is_some())
    }

    #[test]
    fn a_folder_is_judged_by_whose_it_is_and_who_may_enter() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        assert_eq!(severity(&path), (Severity::Note, false));
        fs::write(&path, "a file").unwrap();
        assert_eq!(severity(&path), (Severity::Error, true));
        assert_eq!(severity(&path.join("below")), (Severity::Error, true));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        for (mode, expected) in [
            (0o755, Severity::Warning),
            (0o710, Severity::Warning),
            (0o700, Severity::Ok),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(severity(&path).0, expected, "{mode:o}");
        }
    }

    #[test]
    fn a_disk_is_full_when_it_counts_and_has_none_left() {
        let table = [
            ((1 << 20, LEAST_BYTES), (100, LEAST_FILES), false),
            ((1 << 20, LEAST_BYTES - 1), (100, LEAST_FILES), true),
            ((1 << 20, LEAST_BYTES), (100, LEAST_FILES - 1), true),
            ((0, 0), (0, 0), false),
        ];
        for (bytes, files, expected) in table {
            assert_eq!(is_full(bytes, files), expected, "{bytes:?} {files:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_on_another_machine_is_known_by_its_number() {
        assert!(is_network(0x6969_i64));
        assert!(!is_network(0xef53_i64));
    }
}
