//! `doctor`: diagnoses problems with the daemon and its environment, and suggests fixes.
//!
//! It checks what is visible from outside the daemon, so that it also helps if no daemon starts. The daemon checks the rest.

mod daemons;
mod folders;

use bridge_protocol::method;
use clap::Args;
use std::time::Duration;

use bridge_protocol::diagnosis::{Diagnosis, Diagnostic, DiagnosticKind, Severity};
use bridge_protocol::raw::RawJson;

use super::Context;
use crate::cli::advice::with_daemon_options;
use crate::cli::humanize;
use crate::cli::output::{ATTENTION, BAD, DIM, GOOD, Look, one_line};
use crate::cli::problem::{CommandResult, Exit, Problem};

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
    report.add(context, folders::check_folders(&context.connector.paths))?;
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
                folders::full_disk(&context.connector.paths.data)
                    .into_iter()
                    .collect(),
            )?;
            let mut found = daemons::no_daemon(&problem, &context.connector);
            if found.len() == 1 && problem.pid().is_none() {
                found.extend(daemons::leftover_processes(&context.connector.paths.data));
            }
            report.add(context, found)?;
            report.add(context, daemons::other_daemons(last))?;
            report.end(context)?;
            return Err(Problem::silent(Exit::NoDaemon));
        }
    };
    report.add(
        context,
        daemons::answering_daemon(&status, &context.connector, &daemon),
    )?;
    report.add(context, daemons::other_daemons(Some(status.pid)))?;
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
    let first = format!(
        "{}  {}  {about}{}",
        look.paint(style, &format!("{word:<7}")),
        look.paint(DIM, &format!("{:<12}", name(one.kind))),
        one_line(&one.message)
    );
    let next = one
        .next_step
        .iter()
        .map(|step| format!("{:<9}{} {}", "", look.sign("→", "->"), one_line(step)));
    let next = next.map(|step| look.wrap(&with_daemon_options(&step, options), 11));
    std::iter::once(look.wrap(&first, 23)).chain(next).collect()
}

fn name(kind: DiagnosticKind) -> String {
    match kind {
        DiagnosticKind::Configuration => "config".to_owned(),
        DiagnosticKind::Room => "disk".to_owned(),
        DiagnosticKind::Quirk => "good to know".to_owned(),
        other => humanize::wire_name(other),
    }
}
