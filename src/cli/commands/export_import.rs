//! Commands that export and import conversations: `export`, `import`.

use bridge_protocol::method;
use clap::{Args, ValueHint};
use serde::Deserialize;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bridge_protocol::ErrorKind;
use bridge_protocol::export::{ExportAnswer, ExportFormat, MissingSession, MissingValue};

use super::history::{note_backups, warn_incomplete};
use super::{Context, absolute, create_folder_hint, real_folder, this_folder, unusable_folder, wire_words};
use crate::cli::humanize;
use crate::cli::output::one_line;
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::select::{self, ConversationArgs};
use crate::paths::shell_word;

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
pub(in crate::cli) struct Import {
    /// Bundle made by sessionctl export
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = absolute)]
    pub(in crate::cli) path: String,
    /// Folder that the agent works in; this or --same-folders is required
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = real_folder)]
    pub(in crate::cli) cwd: Option<String>,
    /// Use the folders named in the bundle; only for bundles you trust
    #[arg(long, conflicts_with = "cwd")]
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
    let folder = folder.map(Path::to_owned);
    if let Some(missing) = folder.as_deref().filter(|folder| !folder.exists()) {
        let message = format!("there is no folder {}", missing.display());
        return Err(Problem::failed(message).hint(create_folder_hint(missing)));
    }
    let (daemon, conversation) = context.connect_and_select(options.target.name()).await?;
    let id = humanize::short_id(conversation.id);
    let secrets = if options.secrets { " --secrets" } else { "" };
    let output = options.output.as_deref().filter(|_| path.is_some());
    if let Some(folder) = output.filter(|output| output.ends_with('/') || Path::new(output).is_dir()) {
        let ending = match format {
            ExportFormat::Json => "json",
            ExportFormat::Bundle => "session-bundle.tar.zst",
        };
        let file = Path::new(folder).join(format!("{id}.{ending}"));
        let file = shell_word(&file.to_string_lossy());
        let problem = Problem::usage(format!(
            "cannot export to {}: it names a folder",
            one_line(folder)
        ));
        return Err(problem.hint(format!(
            "name a file there: sessionctl export {id}{secrets} -o {file}"
        )));
    }
    let needs_no_file = format == ExportFormat::Json && path.is_none();
    let folder = folder.map(|folder| format!(" {}: ", folder.display()));
    let call = method::Export {
        conversation_id: conversation.id.into(),
        format,
        path,
        secrets: options.secrets,
        ..Default::default()
    };
    let answer = context.call_with_progress(&daemon, call).await;
    let (answer, raw) = answer.map_err(|problem| match problem.exit {
        Exit::Usage if needs_no_file => problem.with_exit(Exit::Failed).hint(format!(
            "write it to a file: sessionctl export {id}{secrets} -o {id}.json"
        )),
        _ if folder.is_some_and(|folder| problem.text().contains(&folder)) => problem.hint(format!(
            "name a file in another folder, or omit -o: sessionctl export {id}{secrets}{}",
            if format == ExportFormat::Json {
                " --format json"
            } else {
                ""
            }
        )),
        _ => match options.output.as_deref().map(Path::new) {
            Some(file) => problem.hint_if(
                ErrorKind::Conflict,
                format!(
                    "sessionctl export {id}{secrets} -o {}",
                    shell_word(&unused_name(file).to_string_lossy())
                ),
            ),
            None => problem,
        },
    })?;
    match answer {
        ExportAnswer::File(file) if !context.output.json => {
            context
                .output
                .verbatim(&context.output.look.sanitize(&file.path))?;
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

/// Adds a number before the extensions of a file name, so that no file has this name yet.
fn unused_name(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // Skip the first character: a name may begin with a dot.
    let end = name.char_indices().skip(1).find(|(_, letter)| *letter == '.');
    let (stem, extensions) = name.split_at(end.map_or(name.len(), |(at, _)| at));
    let mut names = (2_u64..).map(|number| file.with_file_name(format!("{stem}-{number}{extensions}")));
    names.find(|name| !name.exists()).unwrap_or_default()
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
        (None, Some(file)) => match stem_of_other_format(file) {
            Some(stem) => {
                let conversation = options.target.name().unwrap_or(".");
                return Err(unknown_format_problem(conversation, file, stem));
            }
            None if extension(file).is_some_and(|(_, extension)| extension == "json") => ExportFormat::Json,
            None => ExportFormat::Bundle,
        },
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

/// Splits a name into its stem and its last extension in lower case.
fn extension(name: &str) -> Option<(&str, String)> {
    let (stem, extension) = name.rsplit_once('.')?;
    Some((stem, extension.to_ascii_lowercase()))
}

/// The name without the extensions of an unsupported format (both of `.tar.gz`), or `None` if it has none.
fn stem_of_other_format(name: &str) -> Option<&str> {
    let (stem, extension) = extension(name)?;
    let is_other = OTHER_FORMATS.contains(&extension.as_str());
    is_other.then(|| stem_of_other_format(stem).unwrap_or(stem))
}

/// The error for a name with the extension of an unsupported format. The hint has a command for each supported format.
fn unknown_format_problem(conversation: &str, file: &str, stem: &str) -> Problem {
    let command = |extension: &str| {
        let file = format!("{stem}.{extension}");
        format!(
            "sessionctl export {} -o {}",
            shell_word(conversation),
            shell_word(&file)
        )
    };
    let what = format!("unknown export format: {file}");
    Problem::usage(what).hint(format!(
        "as a bundle: {}; as JSON: {}",
        command("session-bundle.tar.zst"),
        command("json")
    ))
}

/// Imports a bundle, and prints the conversation's id.
pub(in crate::cli) async fn import(context: &mut Context<'_>, options: Import) -> CommandResult {
    let (path, folder, trusts) = (&options.path, options.cwd.as_deref(), options.trust_settings);
    check_bundle(Path::new(path))?;
    if folder.is_none() && !options.same_folders {
        return Err(no_folder_problem(&options));
    }
    let daemon = context.connect().await?;
    let call = method::Import {
        path: path.clone(),
        cwd: options.cwd.clone(),
        same_folders: options.same_folders,
        new_ids: options.new_ids,
        trust_settings: trusts,
        ..Default::default()
    };
    let answer = context.call_and_print(&daemon, call).await.map_err(|problem| {
        if problem.exit == Exit::Busy && !options.new_ids {
            let as_new = import_command(path, folder, true, trusts);
            return problem.hint(format!("import it under new ids: {as_new}"));
        }
        let mut problem = unusable_folder(problem, folder);
        // The bundle could not be read. The hint is about the disk of the store, so it does not apply.
        if problem.kind() == Some(ErrorKind::StoreFailed) && problem.text().contains(path) {
            problem.hint = None;
        }
        let hint = "create a bundle on the machine that has the conversation: sessionctl export .";
        problem.hint_if(ErrorKind::TranscriptDamaged, hint)
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
        let trusted = import_command(path, folder, true, true);
        let what = one_line(&format!("{names}; to import again with all of them: {trusted}"));
        context.output.warning("left out:", &what)?;
    }
    if !answer.missing_values.is_empty() {
        let values = missing_values_text(&answer.missing_values);
        let what = format!("{values}, which were not exported; sessionctl export --secrets includes them");
        context.output.warning("left out:", &what)?;
    }
    Ok(())
}

/// Checks that the file can be a bundle, before other options are checked. The daemon checks its content.
fn check_bundle(path: &Path) -> CommandResult {
    let message = match path.metadata() {
        Ok(file) if file.is_dir() => format!("cannot import {}: it is a folder", path.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("there is no file {}", path.display())
        }
        _ => match exported_as_json(path) {
            None => return Ok(()),
            Some(id) => {
                let message = format!(
                    "cannot import {}: it is an export as JSON, and only bundles can be imported",
                    path.display()
                );
                let id = shell_word(&humanize::short(&id));
                return Err(Problem::usage(message).hint(format!(
                    "export it as a bundle on the machine that has the conversation: sessionctl export {id}"
                )));
            }
        },
    };
    Err(Problem::usage(message).hint("name a bundle; sessionctl export creates one and prints its path"))
}

/// The conversation in a file that is an export as JSON; `None` for other files.
fn exported_as_json(path: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Exported {
        conversation: Named,
    }
    #[derive(Deserialize)]
    struct Named {
        id: String,
    }
    let file = io::BufReader::new(File::open(path).ok()?);
    let exported: Exported = serde_json::from_reader(file).ok()?;
    Some(exported.conversation.id)
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

/// The problem of an import without `--cwd` and `--same-folders`.
fn no_folder_problem(options: &Import) -> Problem {
    let again = |folder| import_command(&options.path, folder, options.new_ids, options.trust_settings);
    let same = format!("{} uses the folders that the bundle names", again(None));
    let problem = Problem::usage(
        "cannot import without a folder for the conversation: give --cwd DIR or --same-folders",
    );
    problem.hint(match this_folder() {
        Ok(here) => format!("{} imports it into this folder; {same}", again(Some(&here))),
        Err(_) => same,
    })
}

/// The command that imports the same bundle into a folder, or into the folders that it names.
fn import_command(path: &str, folder: Option<&str>, new_ids: bool, trust_settings: bool) -> String {
    let place = match folder {
        Some(folder) => format!("--cwd {}", shell_word(folder)),
        None => "--same-folders".to_owned(),
    };
    let mut command = format!("sessionctl import {} {place}", shell_word(path));
    for (is_given, flag) in [(new_ids, " --new-ids"), (trust_settings, " --trust-settings")] {
        command.push_str(if is_given { flag } else { "" });
    }
    command
}

#[cfg(test)]
mod tests {
    use super::import_command;

    #[test]
    fn a_command_can_be_pasted_as_it_is_printed() {
        let command = import_command("/a/b.tar.zst", None, true, false);
        assert_eq!(command, "sessionctl import /a/b.tar.zst --same-folders --new-ids");
        let command = import_command("/a/b.tar.zst", Some("/a"), false, false);
        assert_eq!(command, "sessionctl import /a/b.tar.zst --cwd /a");
        let command = import_command("/it's mine/$x", Some("/a b"), true, false);
        assert_eq!(
            command,
            r"sessionctl import '/it'\''s mine/$x' --cwd '/a b' --new-ids"
        );
    }
}
