//! Carrying conversations elsewhere: `export`, `import`.

use bridge_protocol::method;
use clap::{Args, ValueHint};
use std::io;
use std::path::{Path, PathBuf};

use bridge_protocol::ErrorKind;
use bridge_protocol::export::{ExportAnswer, ExportFormat, MissingSession, MissingValue};

use super::past::{tell_incomplete, tell_kept};
use super::{Context, missing_folder, real_folder, text_of, this_folder, wire_words};
use crate::cli::exit::Exit;
use crate::cli::output::one_line;
use crate::cli::problem::{Outcome, Problem};
use crate::cli::select::{self, Target};
use crate::cli::words;
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
    pub(in crate::cli) target: Target,
    /// File format (default: json if FILE is - or ends in .json, otherwise bundle)
    #[arg(long, value_name = "FORMAT", value_parser = wire_words::<ExportFormat>(&FORMATS))]
    pub(in crate::cli) format: Option<ExportFormat>,
    /// New file; - prints JSON to standard output (default: a bundle in the exports folder)
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(in crate::cli) output: Option<PathBuf>,
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
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(in crate::cli) path: PathBuf,
    /// Folder that the agent works in; this or --same-folders is required
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(in crate::cli) cwd: Option<PathBuf>,
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
pub(in crate::cli) async fn export(context: &mut Context<'_>, options: Export) -> Outcome<Exit> {
    let (format, path) = target(&options)?;
    let (daemon, conversation) = context.on(options.target.name()).await?;
    let needs_no_file = format == ExportFormat::Json && path.is_none();
    let call = method::Export {
        conversation_id: conversation.id.into(),
        format,
        path,
        secrets: options.secrets,
        ..Default::default()
    };
    let answer = context.watch(&daemon, call).await;
    let (answer, raw) = answer.map_err(|problem| match problem.exit {
        Exit::Usage if needs_no_file => problem
            .with_exit(Exit::Failed)
            .hint("name a file with -o FILE.json"),
        _ => match options.output.as_deref().filter(|file| !file.is_dir()) {
            Some(file) => problem.hint_if(
                ErrorKind::Conflict,
                format!(
                    "sessionctl export {} -o {}",
                    words::short_id(conversation.id),
                    shell_word(&unused_name(file).to_string_lossy())
                ),
            ),
            None => problem,
        },
    })?;
    match answer {
        ExportAnswer::File(file) if !context.output.json => {
            context.output.verbatim(&file.path)?;
            tell_kept(context, &file.kept)?;
            tell_missing(context, &file.missing)?;
            for gap in &file.gaps {
                tell_incomplete(context, &gap.upstream_id, &gap.detail)?;
            }
            if !file.missing_values.is_empty() {
                let values = values(&file.missing_values);
                let what = format!("{values}; --secrets includes them");
                context.output.warning("left out:", &what)?;
            }
        }
        _ => context.output.raw(&raw)?,
    }
    Ok(Exit::Done)
}

/// The name with a number before its extensions that no file has yet.
fn unused_name(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // A name may begin with a dot.
    let end = name.char_indices().skip(1).find(|(_, letter)| *letter == '.');
    let (stem, extensions) = name.split_at(end.map_or(name.len(), |(at, _)| at));
    let mut names = (2_u64..).map(|number| file.with_file_name(format!("{stem}-{number}{extensions}")));
    names.find(|name| !name.exists()).unwrap_or_default()
}

/// The format and the file of an export.
fn target(options: &Export) -> Outcome<(ExportFormat, Option<String>)> {
    let output = options.output.as_deref();
    let to_stdout = output == Some(Path::new("-"));
    let format = match (options.format, output) {
        (Some(ExportFormat::Bundle), _) if to_stdout => {
            let problem = Problem::new(Exit::Usage, "a bundle cannot be written to standard output");
            return Err(problem.hint("name a file with -o FILE, or omit -o"));
        }
        (Some(format), _) => format,
        (None, None) => ExportFormat::Bundle,
        (None, Some(_)) if to_stdout => ExportFormat::Json,
        (None, Some(file)) => {
            format_of(file).ok_or_else(|| unknown_name(options.target.name().unwrap_or("."), file))?
        }
    };
    let path = output.filter(|_| !to_stdout).map(absolute).transpose()?;
    Ok((format, path))
}

/// Extensions of formats that no export has.
const OTHER_FORMATS: [&str; 20] = [
    "7z", "bz2", "csv", "doc", "docx", "gz", "htm", "html", "jsonl", "md", "ndjson", "pdf", "rtf", "tar",
    "tgz", "txt", "xml", "xz", "yaml", "zip",
];

/// The format of a file by its name: a bundle unless it ends in `.json`; none for one of [`OTHER_FORMATS`].
fn format_of(path: &Path) -> Option<ExportFormat> {
    let is = |name: &str| has_extension(path, name);
    match () {
        () if is("json") => Some(ExportFormat::Json),
        () if OTHER_FORMATS.into_iter().any(is) => None,
        () => Some(ExportFormat::Bundle),
    }
}

fn has_extension(path: &Path, name: &str) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case(name))
}

/// The error for a name with an extension that no export has, with a command for each format.
fn unknown_name(conversation: &str, path: &Path) -> Problem {
    let mut stem = path.to_owned();
    // Both of `.tar.gz`.
    while OTHER_FORMATS.into_iter().any(|name| has_extension(&stem, name)) {
        stem.set_extension("");
    }
    let command = |extension: &str| {
        let mut renamed = stem.clone().into_os_string();
        renamed.push(".");
        renamed.push(extension);
        format!(
            "sessionctl export {} -o {}",
            shell_word(conversation),
            shell_word(&renamed.to_string_lossy())
        )
    };
    Problem::new(
        Exit::Usage,
        format!("cannot export to {}: no export has this format", path.display()),
    )
    .hint(format!(
        "as a bundle: {}; as JSON: {}",
        command("session-bundle.tar.zst"),
        command("json")
    ))
}

/// Imports a bundle, and prints the conversation's id.
pub(in crate::cli) async fn import(context: &mut Context<'_>, options: Import) -> Outcome<Exit> {
    let path = absolute(&options.path)?;
    let folder = options.cwd.as_deref().map(real_folder).transpose()?;
    check_bundle(&options.path)?;
    if folder.is_none() && !options.same_folders {
        return Err(without_folder(&path, &options));
    }
    let again = |flags: &[&str]| import_again(&path, folder.as_deref(), flags);
    let (as_new, trusted) = if options.trust_settings {
        (again(&["--new-ids", "--trust-settings"]), String::new())
    } else {
        (again(&["--new-ids"]), again(&["--new-ids", "--trust-settings"]))
    };
    let daemon = context.connect().await?;
    let call = method::Import {
        path,
        cwd: folder.clone(),
        same_folders: options.same_folders,
        new_ids: options.new_ids,
        trust_settings: options.trust_settings,
        ..Default::default()
    };
    let answer = context.ask(&daemon, call).await.map_err(|problem| {
        if problem.exit == Exit::Busy && !options.new_ids {
            return problem.hint(format!("{as_new} imports it under new ids"));
        }
        let problem = match &folder {
            Some(folder) => missing_folder(problem, folder),
            None => problem,
        };
        let hint = "create a bundle where the conversation is: sessionctl export .";
        problem.hint_if(ErrorKind::TranscriptDamaged, hint)
    })?;
    select::use_here(&daemon, answer.conversation.id).await;
    context.output.line(&answer.conversation.id.to_string())?;
    tell_missing(context, &answer.missing)?;
    for session in &answer.unchanged {
        let lines = words::count(session.lines, "line is", "lines are");
        let detail = format!("{lines} too long to be changed: the agent may ignore them");
        tell_incomplete(context, &session.upstream_id, &detail)?;
    }
    if !answer.left_out.is_empty() {
        let names = one_line(&answer.left_out.join(", "));
        let what = format!("{names}; to import again with all of them: {trusted}");
        context.output.warning("left out:", &what)?;
    }
    if !answer.missing_values.is_empty() {
        let values = values(&answer.missing_values);
        let what = format!("{values}, which were not exported; sessionctl export --secrets includes them");
        context.output.warning("left out:", &what)?;
    }
    Ok(Exit::Done)
}

/// Checks that there is a file to import, before anything else is asked for. What is in it the daemon says.
fn check_bundle(path: &Path) -> Outcome {
    let hint = "name a bundle; sessionctl export creates one and prints its path";
    match path.metadata() {
        Ok(file) if file.is_dir() => {
            let message = format!("cannot import {}: it is a folder", path.display());
            Err(Problem::new(Exit::Usage, message).hint(hint))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = format!("there is no file {}", path.display());
            Err(Problem::new(Exit::Usage, message).hint(hint))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Values of MCP servers, by their names.
fn values(missing: &[MissingValue]) -> String {
    let named = missing.iter().map(|value| {
        let MissingValue { server, member, name } = value;
        format!("{server}: {member} {name}")
    });
    let named = one_line(&named.collect::<Vec<_>>().join(", "));
    format!("values of MCP servers ({named})")
}

fn tell_missing(context: &mut Context<'_>, missing: &[MissingSession]) -> Outcome {
    missing
        .iter()
        .try_for_each(|one| tell_incomplete(context, &one.upstream_id, &one.detail))
}

/// Neither a folder nor the bundle's own folders were chosen.
fn without_folder(path: &str, options: &Import) -> Problem {
    let mut flags = Vec::new();
    flags.extend(options.new_ids.then_some("--new-ids"));
    flags.extend(options.trust_settings.then_some("--trust-settings"));
    let same = import_again(path, None, &flags);
    let problem = Problem::new(
        Exit::Usage,
        "cannot import without a folder for the conversation: give --cwd DIR or --same-folders",
    );
    problem.hint(match this_folder() {
        Ok(here) => {
            let here = import_again(path, Some(&here), &flags);
            format!("{here} imports it into this folder; {same} uses the folders that the bundle names")
        }
        Err(_) => format!("{same} uses the folders that the bundle names"),
    })
}

/// The command that imports the same bundle into a folder, or into the folders that it names, with these flags.
fn import_again(path: &str, folder: Option<&str>, flags: &[&str]) -> String {
    let place = folder.map_or("--same-folders".to_owned(), |folder| {
        format!("--cwd {}", shell_word(folder))
    });
    let mut command = format!("sessionctl import {} {place}", shell_word(path));
    for flag in flags {
        command.push(' ');
        command.push_str(flag);
    }
    // A path must not send control characters to a terminal.
    if command.chars().any(char::is_control) {
        one_line(&command)
    } else {
        command
    }
}

/// On the command line a path may depend on the current folder.
fn absolute(path: &Path) -> Outcome<String> {
    let path: PathBuf = std::path::absolute(path).map_err(|error| Problem::file("use", path, &error))?;
    text_of(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_as_it_is_told() {
        let told = import_again("/a/b.tar.zst", None, &["--new-ids"]);
        assert_eq!(told, "sessionctl import /a/b.tar.zst --same-folders --new-ids");
        let told = import_again("/a/b.tar.zst", Some("/a"), &[]);
        assert_eq!(told, "sessionctl import /a/b.tar.zst --cwd /a");
        let told = import_again("/it's mine/$x", Some("/a b"), &["--new-ids"]);
        assert_eq!(
            told,
            r"sessionctl import '/it'\''s mine/$x' --cwd '/a b' --new-ids"
        );
    }

    #[test]
    fn what_is_made_follows_from_where_it_goes() {
        let table = [
            (None, None, ExportFormat::Bundle, None),
            (None, Some("-"), ExportFormat::Json, None),
            (None, Some("/t/a.json"), ExportFormat::Json, Some("/t/a.json")),
            (
                None,
                Some("/t/a.tar.zst"),
                ExportFormat::Bundle,
                Some("/t/a.tar.zst"),
            ),
            (Some(ExportFormat::Json), None, ExportFormat::Json, None),
            (
                Some(ExportFormat::Json),
                Some("/t/a"),
                ExportFormat::Json,
                Some("/t/a"),
            ),
            (
                Some(ExportFormat::Bundle),
                Some("/t/a.json"),
                ExportFormat::Bundle,
                Some("/t/a.json"),
            ),
        ];
        for (format, output, made, path) in table {
            let told = target(&export(format, output)).unwrap();
            assert_eq!(told, (made, path.map(str::to_owned)), "{format:?} {output:?}");
        }
        for (format, output) in [
            (Some(ExportFormat::Bundle), "-"),
            (None, "/t/talk.md"),
            (None, "/t/talk.tar.gz"),
        ] {
            let problem = target(&export(format, Some(output))).unwrap_err();
            assert_eq!(problem.exit, Exit::Usage, "{output}");
        }
    }

    fn export(format: Option<ExportFormat>, output: Option<&str>) -> Export {
        Export {
            target: Target {
                conversation: Some(".".to_owned()),
            },
            format,
            output: output.map(Into::into),
            secrets: false,
        }
    }
}
