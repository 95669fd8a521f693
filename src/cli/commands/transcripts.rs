//! `transcripts`: lists the agents' files on this machine.

use std::collections::{BTreeMap, BTreeSet};

use bridge_protocol::method;
use bridge_protocol::transcript::Transcript;

use super::{Context, Filter, check_folder, collect_pages};
use crate::cli::humanize::{self, Clock};
use crate::cli::output::{Look, STRONG, one_line};
use crate::cli::problem::CommandResult;
use crate::cli::table::{Table, dim, left, plain, right};

/// Lists transcripts, newest first.
pub(in crate::cli) async fn transcripts(context: &mut Context<'_>, filter: Filter) -> CommandResult {
    let (most, query) = (filter.max_entries(), filter.query());
    let wanted = method::ListTranscripts {
        query,
        agent: filter.agent.map(Into::into),
        cwd: filter.cwd,
        ..Default::default()
    };
    let daemon = context.connect().await?;
    // Each page repeats the unreadable files; only the first page reports unwatched folders.
    let (mut unreadable, mut unwatched) = (BTreeSet::new(), Vec::new());
    let (listed, has_more) = collect_pages(most, async |cursor, limit| {
        let call = method::ListTranscripts {
            cursor,
            limit,
            ..wanted.clone()
        };
        let page = context.call_and_print(&daemon, call).await?;
        unreadable.extend(page.unreadable);
        unwatched.extend(page.unwatched);
        Ok((page.transcripts, page.next_cursor))
    })
    .await?;
    if listed.is_empty() && !context.output.json {
        check_folder(wanted.cwd.as_deref(), "sessionctl transcripts")?;
    }
    let if_empty = match wanted == method::ListTranscripts::default() {
        true => "no transcripts; sessionctl doctor shows where they are looked for",
        false => "no transcript matches; list all: sessionctl transcripts --all",
    };
    let mut notes = Vec::new();
    for path in unreadable {
        let path = one_line(&path);
        notes.push(format!(
            "{path} could not be read; its transcripts are not listed"
        ));
    }
    for root in unwatched {
        let (path, problem) = (one_line(&root.path), one_line(&root.problem));
        notes.push(format!("changes in {path} cannot be watched: {problem}"));
    }
    let output = &mut *context.output;
    output.table(&table(&listed, output.look), if_empty)?;
    notes.iter().try_for_each(|note| output.note(note))?;
    if has_more {
        let shown = listed.len();
        output.note(&format!("{shown} shown; list all: sessionctl transcripts --all"))?;
    }
    Ok(())
}

fn table(transcripts: &[Transcript], look: Look) -> Table {
    let clock = Clock::here();
    let ids: Vec<&str> = transcripts.iter().map(|one| one.upstream_id.as_str()).collect();
    let owners = transcripts
        .iter()
        .map(|one| one.conversation_id.map(|id| id.to_string()).unwrap_or_default());
    let owners: Vec<String> = owners.collect();
    let mut files: BTreeMap<_, u32> = BTreeMap::new();
    for one in transcripts {
        *files.entry((&one.agent, &one.upstream_id)).or_default() += 1;
    }
    let mut table = Table::new([
        left("SESSION"),
        right("UPDATED"),
        right("SIZE"),
        left("AGENT").optional(),
        left("CONVERSATION"),
        left("FOLDER").optional(),
        left("TITLE"),
    ]);
    let names = humanize::distinct_short_ids(&ids, look)
        .into_iter()
        .zip(humanize::distinct_short_ids(&owners, look));
    for (one, (id, owner)) in transcripts.iter().zip(names) {
        // Only the path distinguishes the files of one session.
        let path = match files[&(&one.agent, &one.upstream_id)] {
            1 => String::new(),
            _ => format!(" ({})", humanize::path(&one.path, look)),
        };
        table.row([
            (id, STRONG),
            dim(clock.age_or_date(one.updated_at, look)),
            plain(humanize::size(one.bytes)),
            dim(one.agent.as_str()),
            dim(if owner.is_empty() { "-".to_owned() } else { owner }),
            dim(humanize::path(&one.cwd, look)),
            plain(text(one, look) + &path),
        ]);
    }
    table
}

/// The most descriptive text of a transcript: its title, otherwise, on a terminal, its folder or its file.
fn text(transcript: &Transcript, look: Look) -> String {
    if look.columns.is_none() {
        return one_line(&transcript.title);
    }
    let texts = [&transcript.title, &transcript.cwd, &transcript.path].map(|text| one_line(text));
    let mut texts = texts.into_iter().filter(|text| !text.is_empty());
    texts.next().unwrap_or_default()
}
