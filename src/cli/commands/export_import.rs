//! Commands that export and import conversations: `export`, `import`.

use bridge_protocol::method;
use clap::{ArgGroup, Args, ValueHint};
use std::path::Path;

use bridge_protocol::ErrorKind;
use bridge_protocol::export::{ExportAnswer, ExportFormat, MissingSession, MissingValue};

use super::history::{note_backups, warn_incomplete};
use super::{Context, absolute, create_folder_hint, real_folder, unusable_folder, wire_words};
use crate::cli::humanize;
use crate::cli::output::one_line;
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::select::{self, ConversationArgs};

/// Export a conversation to a bundle or as JSON
///
/// A bundle holds the transcripts and everything else that sessionctl import needs to continue the conversation, also
/// on another machine. It is a tar archive compressed with zstd. The path of the file is printed.
///
/// With --secrets, the file contains the env and header values of MCP servers, which may be keys. Their args and url are
/// always in the file; check these for keys before you pass it on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl export .
  sessionctl export . -o conversation.json
  sessionctl export 90e2e180 -o - | jq '.messages[].content'")]
pub(in crate::cli) struct Export {
    #[command(flatten)]
    pub(in crate::cli) target: ConversationArgs,
    /// File format (default: json if FILE is - or ends in .json, otherwise bundle)
    #[arg(long, value_name = "FORMAT", value_parser = wire_words::<ExportFormat>(&FORMATS))]
    pub(in crate::cli) format: Option<ExportFormat>,
    /// New file; - prints JSON to standard output (default: a bundle in the exports folder)
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(in crate::cli) output: Option<String>,
    /// Include env and header values of MCP servers, which may be secret (default: omit)
    #[arg(long)]
    pub(in crate::cli) secrets: bool,
}

/// Format of an export.
const FORMATS: [(&str, &str); 2] = [
    ("json", "Messages as JSON, for other programs"),
    (
        "bundle",
        "Archive with transcripts and settings, for sessionctl import",
    ),
];

/// Import a bundle and print the id of the conversation
///
/// --cwd or --same-folders is required, so that a bundle cannot choose the folder that its agent works in.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl import fix-the-build.session-bundle.tar.zst --cwd ~/project
  sessionctl send \"$(sessionctl import FILE --cwd .)\" 'Continue'")]
#[command(group = ArgGroup::new("folders").args(["cwd", "same_folders"]).required(true))]
pub(in crate::cli) struct Import {
    /// Bundle made by sessionctl export
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = absolute)]
    pub(in crate::cli) path: String,
    /// Folder that the agent works in; this or --same-folders is required
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = real_folder)]
    pub(in crate::cli) cwd: Option<String>,
    /// Use the folders named in the bundle; only for bundles you trust
    #[arg(long)]
    pub(in crate::cli) same_folders: bool,
    /// Assign new ids, so that the same conversation can be imported again
    #[arg(long)]
    pub(in crate::cli) new_ids: bool,
    /// Apply all settings, including the mode and MCP servers to start; only for bundles you trust
    #[arg(long)]
    pub(in crate::cli) trust_settings: bool,
}

/// Exports a conversation, and prints the path of the file, or the JSON.
pub(in crate::cli) async fn export(context: &mut Context<'_>, options: Export) -> CommandResult {
    let (format, path) = export_target(&options)?;
    let folder = path.as_deref().and_then(|path| Path::new(path).parent());
    if let Some(missing) = folder.filter(|folder| !folder.exists()) {
        let message = format!("there is no folder {}", missing.display());
        return Err(Problem::failed(message).hint(create_folder_hint(missing)));
    }
    let (daemon, conversation) = context.connect_and_select(options.target.name()).await?;
    let is_printed = format == ExportFormat::Json && path.is_none();
    let call = method::Export {
        conversation_id: conversation.id.into(),
        format,
        path,
        secrets: options.secrets,
        ..Default::default()
    };
    let answer = context.call_with_progress(&daemon, call).await;
    let (answer, raw) = answer.map_err(|problem| match problem.exit {
        Exit::Usage if is_printed => problem
            .with_exit(Exit::Failed)
            .hint("write it to a file with -o FILE"),
        _ => problem,
    })?;
    match answer {
        ExportAnswer::File(file) if !context.output.json => {
            context.output.verbatim(&file.path)?;
            note_backups(context, &file.kept)?;
            warn_missing(context, &file.missing)?;
            for gap in &file.gaps {
                warn_incomplete(context, &gap.upstream_id, &gap.detail)?;
            }
            if !file.missing_values.is_empty() {
                let values = missing_values_text(&file.missing_values);
                let what = format!("{values}; --secrets includes them");
                context.output.warning("left out:", &what)?;
            }
        }
        _ => context.output.raw(&raw)?,
    }
    Ok(())
}

/// The format and the file of an export. The file is `None` for standard output and for the daemon's folder of exports.
fn export_target(options: &Export) -> CommandResult<(ExportFormat, Option<String>)> {
    let output = options.output.as_deref();
    let to_stdout = output == Some("-");
    let format = match (options.format, output) {
        (Some(ExportFormat::Bundle), _) if to_stdout => {
            let problem = Problem::usage("a bundle cannot be written to standard output");
            return Err(problem.hint("name a file with -o FILE, or omit -o"));
        }
        (Some(format), _) => format,
        (None, None) => ExportFormat::Bundle,
        (None, Some(_)) if to_stdout => ExportFormat::Json,
        (None, Some(file)) => {
            let extension = Path::new(file).extension().unwrap_or_default();
            let extension = extension.to_string_lossy().to_lowercase();
            if OTHER_FORMATS.contains(&extension.as_str()) {
                let problem = Problem::usage(format!("unknown export format: {extension}"));
                return Err(problem.hint("name a file that ends in .json or in .tar.zst, or give --format"));
            }
            match extension == "json" {
                true => ExportFormat::Json,
                false => ExportFormat::Bundle,
            }
        }
    };
    let path = output.filter(|_| !to_stdout).map(absolute).transpose();
    let path = path.map_err(|error| Problem::failed(format!("cannot write there: {error}")))?;
    Ok((format, path))
}

/// Extensions of formats that are not supported.
const OTHER_FORMATS: [&str; 20] = [
    "7z", "bz2", "csv", "doc", "docx", "gz", "htm", "html", "jsonl", "md", "ndjson", "pdf", "rtf", "tar",
    "tgz", "txt", "xml", "xz", "yaml", "zip",
];

/// Imports a bundle, and prints the conversation's id.
pub(in crate::cli) async fn import(context: &mut Context<'_>, options: Import) -> CommandResult {
    let daemon = context.connect().await?;
    let call = method::Import {
        path: options.path,
        cwd: options.cwd.clone(),
        same_folders: options.same_folders,
        new_ids: options.new_ids,
        trust_settings: options.trust_settings,
        ..Default::default()
    };
    let answer = context.call_and_print(&daemon, call).await.map_err(|problem| {
        let problem = unusable_folder(problem, options.cwd.as_deref());
        problem
            .hint_if(ErrorKind::Conflict, "import it under new ids with --new-ids")
            .hint_if(
                ErrorKind::TranscriptDamaged,
                "create a bundle with sessionctl export",
            )
    })?;
    select::set_current_as_started(&daemon, &answer.conversation).await;
    context.output.line(&answer.conversation.id.to_string())?;
    warn_missing(context, &answer.missing)?;
    for session in &answer.unchanged {
        let lines = humanize::count(session.lines, "line is", "lines are");
        let detail = format!("{lines} too long to be changed: the agent may ignore them");
        warn_incomplete(context, &session.upstream_id, &detail)?;
    }
    if !answer.left_out.is_empty() {
        let names = answer.left_out.join(", ");
        let what = one_line(&format!("{names}; --trust-settings imports them too"));
        context.output.warning("left out:", &what)?;
    }
    if !answer.missing_values.is_empty() {
        let values = missing_values_text(&answer.missing_values);
        let what = format!("{values}, which were not exported; sessionctl export --secrets includes them");
        context.output.warning("left out:", &what)?;
    }
    Ok(())
}

/// Lists missing values of MCP servers by their names.
fn missing_values_text(missing: &[MissingValue]) -> String {
    let named = missing.iter().map(|value| {
        let MissingValue { server, member, name } = value;
        format!("{server}: {member} {name}")
    });
    let named = one_line(&named.collect::<Vec<_>>().join(", "));
    format!("values of MCP servers ({named})")
}

fn warn_missing(context: &mut Context<'_>, missing: &[MissingSession]) -> CommandResult {
    missing
        .iter()
        .try_for_each(|one| warn_incomplete(context, &one.upstream_id, &one.detail))
}
