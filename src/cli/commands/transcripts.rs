//! `transcripts`: what the agents have written on this machine, as aligned columns.

use std::collections::{BTreeMap, BTreeSet};

use bridge_protocol::UpstreamId;
use bridge_protocol::rpc::TranscriptRpcClient;
use bridge_protocol::transcript::Transcript;
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr;

use super::{Context, this_folder};
use crate::cli::args::Transcripts;
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{DIM, Look, STRONG, cut, one_line, pad};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::progress::watched;
use crate::cli::words;

/// The most that is asked for at once; the daemon's own limit of a page.
const PAGE: u32 = 500;

/// Lists transcripts, newest first.
pub(super) async fn transcripts(context: &mut Context<'_>, options: Transcripts) -> Outcome<Exit> {
    let cwd = if options.here { Some(this_folder()?) } else { None };
    let daemon = context.connect().await?;
    let mut transcripts = Vec::new();
    let mut cursor = None;
    let mut left = options.limit;
    // The daemon looks at the folders for the first page: what it cannot watch is told with that, what it cannot read with all.
    let (mut unreadable, mut unwatched) = (BTreeSet::new(), None);
    loop {
        let call = daemon.list_transcripts(
            options.agent.clone().map(Into::into),
            cwd.clone(),
            options.query.clone(),
            cursor.take(),
            Some(left.clamp(1, PAGE)),
        );
        let page = watched(context.output, &daemon, "transcript/list", call).await?;
        if context.output.json {
            context.answer(&daemon, "transcript/list")?;
        }
        let got = u32::try_from(page.transcripts.len()).unwrap_or(u32::MAX);
        left = left.saturating_sub(got);
        transcripts.extend(page.transcripts);
        unreadable.extend(page.unreadable);
        unwatched.get_or_insert(page.unwatched);
        cursor = page.next_cursor;
        if left == 0 || cursor.is_none() || got == 0 {
            break;
        }
    }
    if context.output.json {
        return Ok(Exit::Done);
    }
    for line in table(&transcripts, Timestamp::now(), options.long, context.output.look) {
        context.output.line(&line)?;
    }
    for path in unreadable {
        let path = one_line(&path);
        context.output.note(&format!(
            "{path} could not be read; what is in it is missing here"
        ))?;
    }
    for root in unwatched.into_iter().flatten() {
        let (path, problem) = (one_line(&root.path), one_line(&root.problem));
        context
            .output
            .note(&format!("changes in {path} cannot be watched: {problem}"))?;
    }
    if transcripts.is_empty() {
        context.output.note("no transcripts")?;
    } else if cursor.is_some() {
        context.output.note("there are more; -n COUNT shows them")?;
    }
    Ok(Exit::Done)
}

/// The fewest characters of a transcript's id that name it, as of a conversation's.
const LEAST_CHARS: usize = 6;

/// How many of those that an id may mean are told.
const TOLD: usize = 5;

/// The one transcript whose id begins so; none when there is no such.
///
/// # Errors
/// When there are several.
pub(super) async fn that_begins(
    daemon: &Daemon,
    beginning: &str,
    agent: Option<&str>,
) -> Outcome<Option<UpstreamId>> {
    if beginning.chars().count() < LEAST_CHARS {
        return Ok(None);
    }
    let mut found: BTreeMap<UpstreamId, String> = BTreeMap::new();
    let mut cursor = None;
    loop {
        let agent = agent.map(Into::into);
        let query = Some(beginning.to_owned());
        let page = daemon
            .list_transcripts(agent, None, query, cursor.take(), Some(PAGE))
            .await?;
        for transcript in page.transcripts {
            if transcript.upstream_id.as_str().starts_with(beginning) {
                let text = text(&transcript, false);
                found.insert(transcript.upstream_id, text);
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if found.len() > 1 {
        let told = found.iter().take(TOLD).map(|(id, text)| {
            let id = one_line(id.as_str());
            format!("{id} ({text})")
        });
        let told: Vec<String> = told.collect();
        let more = if found.len() > TOLD { ", …" } else { "" };
        return Err(Problem::new(
            Exit::NotFound,
            format!(
                "{} transcripts have an id that begins with {beginning:?}: {}{more}",
                found.len(),
                told.join(", ")
            ),
        )
        .hint("give more characters of the id; sessionctl transcripts --long shows whole ids"));
    }
    Ok(found.into_keys().next())
}

/// One line a transcript: its session, how long ago, its size, its agent, the conversation that holds it, its title.
fn table(transcripts: &[Transcript], now: Timestamp, long: bool, look: Look) -> Vec<String> {
    let ids = transcripts
        .iter()
        .map(|transcript| transcript.upstream_id.as_str());
    let rows: Vec<([String; 5], String)> = transcripts
        .iter()
        .zip(words::names(ids))
        .map(|(transcript, name)| {
            let id = transcript.upstream_id.as_str();
            let owner = transcript.conversation_id;
            let (id, owner) = if long {
                (one_line(id), owner.map(|id| id.to_string()))
            } else {
                (name, owner.map(words::short_id))
            };
            let columns = [
                id,
                words::age(transcript.updated_at, now),
                size(transcript.bytes),
                one_line(transcript.agent.as_str()),
                owner.unwrap_or_else(|| "-".to_owned()),
            ];
            (columns, text(transcript, long))
        })
        .collect();
    let mut widths = [0; 5];
    for (columns, _) in &rows {
        for (width, column) in widths.iter_mut().zip(columns) {
            *width = (*width).max(column.width());
        }
    }
    let taken: usize = widths.iter().map(|width| width + 2).sum();
    rows.iter()
        .map(|([id, age, size, agent, owner], text)| {
            let text = match look.columns {
                Some(columns) => cut(text, columns.saturating_sub(taken), look),
                None => text.clone(),
            };
            let line = format!(
                "{}  {}  {}  {}  {}  {text}",
                look.paint(STRONG, &pad(id, widths[0])),
                look.paint(DIM, &pad(age, widths[1])),
                pad(size, widths[2]),
                look.paint(DIM, &pad(agent, widths[3])),
                pad(owner, widths[4]),
            );
            line.trim_end().to_owned()
        })
        .collect()
}

/// What says most about a transcript: its title, else its folder, else its file; all of them in the long form.
fn text(transcript: &Transcript, long: bool) -> String {
    let [title, cwd, path] =
        [&transcript.title, &transcript.cwd, &transcript.path].map(|text| one_line(text));
    if long {
        return format!("{cwd}  {title}  {path}").trim_start().to_owned();
    }
    let texts = [title, cwd, path];
    texts
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

/// A size in the largest unit that fits.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut tenths = bytes / 100;
    let mut unit = 0;
    while tenths >= 10_000 && unit + 1 < UNITS.len() {
        tenths /= 1_000;
        unit += 1;
    }
    if tenths >= 100 {
        format!("{} {}", tenths / 10, UNITS[unit])
    } else {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use bridge_protocol::transcript::Transcript;

    use super::{Look, size, table};

    fn transcript(title: &str, cwd: &str, held: bool) -> Transcript {
        let id = "5d0c2a4e-7f61-4b0a-9c36-1e2f3a4b5c6d";
        Transcript {
            agent: "claude".into(),
            upstream_id: "a81d4c21-7f61-4b0a-9c36-1e2f3a4b5c6d".into(),
            cwd: cwd.to_owned(),
            title: title.to_owned(),
            bytes: 131_072,
            turns: None,
            updated_at: "2026-11-03T11:00:00Z".parse().unwrap(),
            conversation_id: held.then(|| id.parse().unwrap()),
            forked_from: None,
            path: "/home/u/.claude/projects/-home-u/x.jsonl".to_owned(),
        }
    }

    #[test]
    fn columns_are_aligned_and_say_whose_a_transcript_is() {
        let transcripts = [
            transcript("Mend the build", "/home/u", true),
            transcript("", "/home/u", false),
            transcript("", "", false),
        ];
        let now = "2026-11-03T12:00:00Z".parse().unwrap();
        assert_eq!(
            table(&transcripts, now, false, Look::default()),
            [
                "a81d4c21  1 h  131 kB  claude  5d0c2a4e  Mend the build",
                "a81d4c21  1 h  131 kB  claude  -         /home/u",
                "a81d4c21  1 h  131 kB  claude  -         /home/u/.claude/projects/-home-u/x.jsonl",
            ]
        );
    }

    #[test]
    fn sizes() {
        let table = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (9_999, "9.9 kB"),
            (10_000, "10 kB"),
            (999_999, "999 kB"),
            (3_300_000_000, "3.3 GB"),
            (u64::MAX, "18446744 TB"),
        ];
        for (bytes, text) in table {
            assert_eq!(size(bytes), text);
        }
    }
}
