//! `transcripts`: what the agents have written on this machine, as aligned columns.

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};

use bridge_protocol::UpstreamId;
use bridge_protocol::transcript::Transcript;
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr;

use super::{Context, this_folder};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{DIM, Look, STRONG, cut, one_line, pad};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::progress::watched;
use crate::cli::words;

/// List agent transcripts on this machine, newest first
///
/// Columns: session id prefix, time of the last change, size, agent, conversation and title. If a session has several
/// files, their paths are printed too. --long adds the number of turns, if it is known without reading the file.
#[derive(Debug, Args)]
pub(in crate::cli) struct Transcripts {
    /// Text to find in title, folder, path or id
    #[arg(value_name = "QUERY")]
    pub(in crate::cli) query: Option<String>,
    /// List only transcripts of this agent
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) agent: Option<String>,
    /// List only transcripts of this folder
    #[arg(long)]
    pub(in crate::cli) here: bool,
    /// Maximum number of entries
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) limit: u32,
    /// Print full ids, turns, folders and paths
    #[arg(long, short)]
    pub(in crate::cli) long: bool,
}

/// The most that is asked for at once; the daemon's own limit of a page.
const PAGE: u32 = 500;

/// Lists transcripts, newest first.
pub(in crate::cli) async fn transcripts(context: &mut Context<'_>, options: Transcripts) -> Outcome<Exit> {
    let cwd = if options.here { Some(this_folder()?) } else { None };
    let daemon = context.connect().await?;
    let mut transcripts = Vec::new();
    let mut cursor = None;
    let mut left = options.limit;
    // The daemon looks at the folders for the first page: what it cannot watch is told with that, what it cannot read with all.
    let (mut unreadable, mut unwatched) = (BTreeSet::new(), None);
    loop {
        let call = daemon.call(method::ListTranscripts {
            agent: options.agent.clone().map(Into::into),
            cwd: cwd.clone(),
            query: options.query.clone(),
            cursor: cursor.take(),
            limit: Some(left.clamp(1, PAGE)),
        });
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
pub(super) const LEAST_CHARS: usize = 6;

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
            .call(method::ListTranscripts {
                agent,
                query,
                cursor: cursor.take(),
                limit: Some(PAGE),
                ..Default::default()
            })
            .await?;
        for transcript in page.transcripts {
            if transcript.upstream_id.as_str().starts_with(beginning) {
                let text = text(&transcript);
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

/// One line a transcript: its session, how long ago, its size, its agent, the conversation that holds it, its title. The
/// long form has its turns too, its folder and its path, and is not cut: what is whole is what was asked for.
fn table(transcripts: &[Transcript], now: Timestamp, long: bool, look: Look) -> Vec<String> {
    let ids = transcripts
        .iter()
        .map(|transcript| transcript.upstream_id.as_str());
    let copies = places_of_copies(transcripts);
    let short = transcripts
        .iter()
        .zip(words::names(ids).zip(copies))
        .map(|(transcript, (name, copy))| {
            let [id, age, size, agent, owner] = columns(transcript, name, now);
            let place = copy.map_or_else(String::new, |place| format!("[{place}] "));
            vec![id, age, size, agent, owner, place + &text(transcript)]
        });
    let rows: Vec<Vec<String>> = match long {
        true => transcripts
            .iter()
            .map(|transcript| whole_columns(transcript, now))
            .collect(),
        false => short.collect(),
    };
    let mut widths = vec![0; rows.first().map_or(0, |row| row.len().saturating_sub(1))];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let taken: usize = widths.iter().map(|width| width + 2).sum();
    let line = |row: &Vec<String>| {
        let Some((last, columns)) = row.split_last() else {
            return String::new();
        };
        let mut line = String::new();
        for (index, (cell, width)) in columns.iter().zip(&widths).enumerate() {
            let cell = pad(cell, *width);
            let cell = match index {
                0 => look.paint(STRONG, &cell),
                1 | 3 => look.paint(DIM, &cell),
                _ => cell,
            };
            line.push_str(&cell);
            line.push_str("  ");
        }
        match look.columns {
            Some(columns) if !long => line.push_str(&cut(last, columns.saturating_sub(taken), look)),
            _ => line.push_str(last),
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn columns(transcript: &Transcript, id: String, now: Timestamp) -> [String; 5] {
    [
        id,
        words::age(transcript.updated_at, now),
        size(transcript.bytes),
        one_line(transcript.agent.as_str()),
        transcript
            .conversation_id
            .map_or_else(|| "-".to_owned(), words::short_id),
    ]
}

fn whole_columns(transcript: &Transcript, now: Timestamp) -> Vec<String> {
    let id = one_line(transcript.upstream_id.as_str());
    let [id, age, size, agent, _] = columns(transcript, id, now);
    let or_dash = |text: Option<String>| {
        text.filter(|text| !text.is_empty())
            .unwrap_or_else(|| "-".to_owned())
    };
    vec![
        id,
        age,
        size,
        agent,
        or_dash(transcript.conversation_id.map(|id| id.to_string())),
        or_dash(transcript.turns.map(|turns| words::count(turns, "turn", "turns"))),
        or_dash(Some(one_line(&transcript.cwd))),
        one_line(&transcript.path),
        one_line(&transcript.title),
    ]
}

/// Of each transcript whose session has several files in the list, where this one is: what of its path is not the same
/// for all of them.
fn places_of_copies(transcripts: &[Transcript]) -> Vec<Option<String>> {
    let key = |transcript: &Transcript| (transcript.agent.clone(), transcript.upstream_id.clone());
    let mut paths: BTreeMap<_, BTreeSet<Vec<&str>>> = BTreeMap::new();
    for transcript in transcripts {
        let path = transcript.path.split('/').collect();
        paths.entry(key(transcript)).or_default().insert(path);
    }
    let place = |transcript: &Transcript| {
        let all = paths.get(&key(transcript)).filter(|all| all.len() > 1)?;
        let own: Vec<&str> = transcript.path.split('/').collect();
        // Something is to be left of each.
        let most = all.iter().map(Vec::len).min()?.saturating_sub(1);
        let front = (0..most)
            .take_while(|index| all.iter().all(|path| path.get(*index) == own.get(*index)))
            .count();
        let from_end =
            |path: &[&str], index: usize| path.iter().rev().nth(index).map(|&part| part.to_owned());
        let back = (0..most - front)
            .take_while(|index| {
                all.iter()
                    .all(|path| from_end(path, *index) == from_end(&own, *index))
            })
            .count();
        let place = own.get(front..own.len().saturating_sub(back))?;
        Some(one_line(&place.join("/")))
    };
    transcripts.iter().map(place).collect()
}

/// What says most about a transcript: its title, else its folder, else its file.
fn text(transcript: &Transcript) -> String {
    let texts = [&transcript.title, &transcript.cwd, &transcript.path].map(|text| one_line(text));
    texts
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

/// A size in the largest unit that fits.
pub(super) fn size(bytes: u64) -> String {
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
    fn the_long_form_is_whole_and_aligned() {
        let mut counted = transcript("Mend the build", "/home/u", true);
        counted.turns = Some(1);
        let mut untitled = transcript("", "", false);
        untitled.path = "/t/x.jsonl".to_owned();
        let now = "2026-11-03T12:00:00Z".parse().unwrap();
        let look = Look {
            columns: Some(80),
            ..Look::default()
        };
        let (id, owner) = (
            "a81d4c21-7f61-4b0a-9c36-1e2f3a4b5c6d",
            "5d0c2a4e-7f61-4b0a-9c36-1e2f3a4b5c6d",
        );
        let path = "/home/u/.claude/projects/-home-u/x.jsonl";
        assert_eq!(
            table(&[counted, untitled], now, true, look),
            [
                format!("{id}  1 h  131 kB  claude  {owner}  1 turn  /home/u  {path}  Mend the build"),
                format!(
                    "{id}  1 h  131 kB  claude  {:36}  -       -        /t/x.jsonl",
                    "-"
                ),
            ]
        );
    }

    #[test]
    fn several_files_of_one_session_are_told_apart() {
        let table_of = |paths: &[&str]| -> Vec<String> {
            let copies: Vec<_> = paths
                .iter()
                .map(|path| Transcript {
                    path: (*path).to_owned(),
                    ..transcript("Mend", "/home/u", false)
                })
                .collect();
            let now = "2026-11-03T12:00:00Z".parse().unwrap();
            let lines = table(&copies, now, false, Look::default());
            let last = lines.iter().filter_map(|line| line.split("  -  ").nth(1));
            last.map(str::to_owned).collect()
        };
        let table: [(&[&str], &[&str]); 4] = [
            (&["/c/p/-a/x.jsonl"], &["Mend"]),
            (
                &["/c/p/-a/x.jsonl", "/c/p/-b/x.jsonl"],
                &["[-a] Mend", "[-b] Mend"],
            ),
            (
                &["/c/archived_sessions/x.jsonl", "/c/sessions/2026/11/x.jsonl"],
                &["[archived_sessions] Mend", "[sessions/2026/11] Mend"],
            ),
            (
                &["/c/x.jsonl", "/c/x/x.jsonl"],
                &["[x.jsonl] Mend", "[x/x.jsonl] Mend"],
            ),
        ];
        for (paths, lines) in table {
            assert_eq!(table_of(paths), lines);
        }
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
