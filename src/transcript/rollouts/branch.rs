//! A branch of a rollout that leaves it at any record: a file as Codex' own fork writes one, which holds nothing but its first
//! line and continues the other's history by reference.
//!
//! Codex (0.166) forks behind whole turns alone, but goes on with a history that ends within one, as was seen: the model is sent
//! what stands before the place, with nothing filled in.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use uuid::Uuid;

use super::text::Text;
use super::{Lineage, Source, place_of};
use crate::transcript::TranscriptError;
use crate::transcript::codex::item_completed;
use crate::transcript::codex::record_number;
use crate::transcript::copy;
use crate::transcript::fields::Fields;
use crate::transcript::lines::Lines;
use crate::transcript::record::line_text;

/// What an item is that tells of a prompt; it is written behind the prompt.
const PROMPT: &str = "UserMessage";

/// Where a history ends in a file.
struct End {
    /// The first number that does not count.
    ordinal: u64,
    /// Where its line would begin.
    offset: u64,
}

/// Makes a new session that continues the history of the session `upstream_id` up to a record, with it: of the name `record` in the
/// file of the session `owner`. It runs in `cwd`. Its id and its file, which are told before anything is there.
///
/// # Errors
/// As [`find`](super::find), and what is answered by who is told; [`TranscriptError::RecordNotFound`] when there is no such record in that history, and
/// [`TranscriptError::Io`], also when its version does not continue histories by reference.
pub fn branch_at(
    root: &Path,
    upstream_id: &str,
    owner: &str,
    record: &str,
    cwd: &str,
    note: impl FnOnce(&str, &Path) -> Result<(), TranscriptError>,
) -> Result<(String, PathBuf), TranscriptError> {
    let Lineage { sources, missing } = Lineage::read(root, upstream_id)?;
    if let Some(missing) = missing {
        return Err(TranscriptError::NotFound {
            upstream_id: missing.upstream_id,
            root: root.to_owned(),
        });
    }
    let own = sources
        .last()
        .map(|source| source.path.clone())
        .unwrap_or_default();
    let not_found = || TranscriptError::RecordNotFound {
        path: own.clone(),
        uuid: record.to_owned(),
    };
    let number = record_number(record).ok_or_else(not_found)?;
    let source = sources.iter().find(|source| source.upstream_id == owner);
    let source = source.ok_or_else(not_found)?;
    let end = end_of(source, number).map_err(TranscriptError::io("read", &source.path))?;
    let end = end.ok_or_else(not_found)?;

    let now = Timestamp::now();
    let new_id = Uuid::now_v7().to_string();
    let mut line = first_line(&own).map_err(TranscriptError::io("read", &own))?;
    rewrite(&mut line, upstream_id, &new_id, owner, &end, cwd, now).ok_or_else(|| {
        let cause = "its version does not continue another session's history by reference";
        TranscriptError::io("branch", &own)(io::Error::new(io::ErrorKind::Unsupported, cause))
    })?;
    // As Codex names them, by the time of the place where it runs.
    let at = now.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H-%M-%S");
    let name = PathBuf::from(format!("rollout-{at}-{new_id}.jsonl"));
    let path = place_of(root, &name).unwrap_or(name);
    note(&new_id, &path)?;
    let folder = path.parent().unwrap_or(root);
    copy::make_folder(folder)?;
    let path = copy::create_in(folder, copy::session_of(&path), |writer| {
        writeln!(writer, "{line}").map_err(TranscriptError::io("write", &path))
    })?;
    Ok((new_id, path))
}

/// Where a history ends that ends with a record; none where the file, as far as it counts, has none of that number.
fn end_of(source: &Source, number: u64) -> io::Result<Option<End>> {
    let text = Text::open(&source.path).map_err(io::Error::other)?.0;
    let mut lines = Lines::new(text, 0);
    let mut end = None;
    while let Some(line) = lines.next_line()? {
        let ordinal = ordinal_of(line.bytes);
        if source.cut.excludes(ordinal, line.offset) || !line.ended {
            break;
        }
        let follows = end.is_some();
        let counts = match follows {
            true => item_completed(line.bytes).is_some_and(|item| item.kind == PROMPT),
            false => ordinal == Some(number),
        };
        if let Some(ordinal) = ordinal.filter(|_| counts) {
            end = Some(End {
                ordinal: ordinal + 1,
                offset: line.offset + line.bytes.len() as u64 + 1,
            });
        }
        if follows {
            break;
        }
    }
    Ok(end)
}

fn ordinal_of(line: &[u8]) -> Option<u64> {
    let text = line_text(line);
    Fields::parse(&text)?.raw("ordinal")?.get().parse().ok()
}

fn first_line(path: &Path) -> io::Result<Value> {
    let text = Text::open(path).map_err(io::Error::other)?.0;
    let mut lines = Lines::new(text, 0);
    let line = lines.next_line()?.map(|line| line.bytes.to_vec());
    Ok(serde_json::from_slice(&line.unwrap_or_default())?)
}

/// Makes the first line of a session that of a fork of it; none where its version knows no histories by reference.
fn rewrite(
    line: &mut Value,
    upstream_id: &str,
    new_id: &str,
    owner: &str,
    end: &End,
    cwd: &str,
    now: Timestamp,
) -> Option<()> {
    let at = format!("{now:.3}");
    let payload = line.get_mut("payload")?.as_object_mut()?;
    if payload.get("history_mode")? != "paginated" {
        return None;
    }
    let old_cwd = payload.get("cwd").cloned();
    for name in ["session_id", "id"] {
        payload.insert(name.to_owned(), json!(new_id));
    }
    payload.insert("timestamp".to_owned(), json!(at));
    payload.insert("forked_from_id".to_owned(), json!(upstream_id));
    payload.insert("forked_from_ordinal_exclusive".to_owned(), json!(end.ordinal));
    payload.insert("cwd".to_owned(), json!(cwd));
    if let Some(roots) = payload
        .get_mut("runtime_workspace_roots")
        .and_then(Value::as_array_mut)
    {
        for root in roots.iter_mut().filter(|root| Some(&**root) == old_cwd.as_ref()) {
            *root = json!(cwd);
        }
    }
    if let Some(window) = payload.get_mut("context_window").and_then(Value::as_object_mut) {
        window.insert("window_id".to_owned(), json!(Uuid::now_v7().to_string()));
    }
    let base = json!({
        "thread_id": owner,
        "end_ordinal_exclusive": end.ordinal,
        "end_byte_offset": end.offset,
    });
    payload.insert("history_base".to_owned(), base);
    line["timestamp"] = json!(at);
    line["ordinal"] = json!(end.ordinal);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::durable::tests::Disk;
    use crate::transcript::rollouts::{OpenRollout, RolloutBooks};

    const SOURCE: &str = "01a20272-0000-7000-8000-000000000001";
    const OWNER: &str = "01a20272-0000-7000-8000-000000000002";

    fn record(ordinal: u64, payload: &Value) -> String {
        let kind = match payload["type"].as_str() {
            Some("message" | "function_call" | "function_call_output") => "response_item",
            _ => "event_msg",
        };
        json!({"timestamp": "2026-11-03T10:00:00.000Z", "ordinal": ordinal, "type": kind, "payload": payload})
            .to_string()
    }

    fn meta(ordinal: u64, id: &str, more: &Value) -> String {
        let mut payload = json!({"session_id": id, "id": id, "cwd": "/old", "history_mode": "paginated",
            "runtime_workspace_roots": ["/old", "/other"], "context_window": {"window_id": "w"}, "of_tomorrow": {"n": 1}});
        payload
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"timestamp": "2026-11-03T10:00:00.000Z", "ordinal": ordinal, "type": "session_meta", "payload": payload}).to_string()
    }

    fn prompt(ordinal: u64, turn: &str, text: &str) -> Vec<String> {
        vec![
            record(ordinal, &json!({"type": "task_started", "turn_id": turn})),
            record(
                ordinal + 1,
                &json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}],
                "internal_chat_message_metadata_passthrough": {"turn_id": turn, "content_item_metadata": [{"provenance": {"type": "user"}}]}}),
            ),
            record(
                ordinal + 2,
                &json!({"type": "item_completed", "turn_id": turn, "item": {"type": "UserMessage", "id": "i"}}),
            ),
        ]
    }

    fn reply(ordinal: u64, turn: &str) -> Vec<String> {
        vec![
            record(
                ordinal,
                &json!({"type": "item_completed", "turn_id": turn, "item": {"type": "AgentMessage", "id": "j"}}),
            ),
            record(
                ordinal + 1,
                &json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}],
                "internal_chat_message_metadata_passthrough": {"turn_id": turn}}),
            ),
        ]
    }

    fn write(root: &Path, id: &str, lines: &[String]) -> PathBuf {
        let folder = root.join("sessions/2026/11/03");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("rollout-2026-11-03T10-00-00-{id}.jsonl"));
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        path
    }

    #[test]
    fn a_branch_continues_what_stands_before_its_place() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let lines = [
            vec![meta(0, OWNER, &json!({}))],
            prompt(1, "t-1", "one"),
            reply(4, "t-1"),
            prompt(6, "t-2", "later"),
        ]
        .concat();
        let owner = write(root, OWNER, &lines);
        let base = json!({"history_base": {"thread_id": OWNER, "end_ordinal_exclusive": 6}});
        let own = [
            vec![meta(6, SOURCE, &base)],
            prompt(7, "t-3", "two"),
            reply(10, "t-3"),
            reply(12, "t-3"),
        ]
        .concat();
        let source = write(root, SOURCE, &own);
        let before = [&owner, &source].map(|path| std::fs::read(path).unwrap());
        let ends_at =
            |lines: &[String], count: usize| lines[..count].iter().map(|line| line.len() + 1).sum::<usize>();
        let table = [
            // The prompt with what tells of it, a reply without what tells of the next, and what the source inherited.
            (SOURCE, "o8", 10, ends_at(&own, 4), 3),
            (SOURCE, "o11", 12, ends_at(&own, 6), 4),
            (SOURCE, "o13", 14, ends_at(&own, 8), 5),
            (OWNER, "o2", 4, ends_at(&lines, 4), 1),
            (OWNER, "o5", 6, ends_at(&lines, 6), 2),
        ];
        for (holder, name, ordinal, offset, messages) in table {
            let mut noted = None;
            let told = |id: &str, path: &Path| {
                assert!(!path.exists(), "before anything is there");
                noted = Some((id.to_owned(), path.to_owned()));
                Ok(())
            };
            let disk = Disk::of(root);
            let (id, path) = branch_at(root, SOURCE, holder, name, "/new", told).unwrap();
            // Of the first one the folder of the day is new.
            assert_eq!(disk.check_lasts("a branch"), 1);
            assert_eq!(noted, Some((id.clone(), path.clone())));
            let text = std::fs::read_to_string(&path).unwrap();
            let line: Value = serde_json::from_str(&text).unwrap();
            let payload = &line["payload"];
            assert_eq!(
                payload["history_base"],
                json!({"thread_id": holder, "end_ordinal_exclusive": ordinal, "end_byte_offset": offset})
            );
            assert_eq!(
                [
                    &line["ordinal"],
                    &payload["forked_from_id"],
                    &payload["id"],
                    &payload["session_id"],
                    &payload["cwd"]
                ],
                [
                    &json!(ordinal),
                    &json!(SOURCE),
                    &json!(id),
                    &json!(id),
                    &json!("/new")
                ]
            );
            assert_eq!(payload["runtime_workspace_roots"], json!(["/new", "/other"]));
            assert_eq!(payload["of_tomorrow"], json!({"n": 1}));
            assert_ne!(payload["context_window"]["window_id"], "w");
            assert!(Uuid::try_parse(&id).is_ok_and(|id| id.get_version_num() == 7));
            let books = RolloutBooks::default();
            let open = OpenRollout::open(&books, root, &id, None).unwrap();
            assert_eq!(
                (open.book.messages(), open.missing.as_ref(), open.book.damages),
                (messages, None, 0)
            );
            assert_eq!(open.book.record_id(messages - 1), name);
            // The source up to there is the same.
            let until = OpenRollout::open(&books, root, SOURCE, Some((holder, name))).unwrap();
            assert_eq!((until.book.messages(), until.book.damages), (messages, 0));
            assert_eq!(until.book.turns(), open.book.turns());
        }
        for (holder, name) in [
            (SOURCE, "o99"),
            (OWNER, "o7"),
            ("nobody", "o2"),
            (SOURCE, "t-3"),
            (SOURCE, "l3"),
        ] {
            let refused = branch_at(root, SOURCE, holder, name, "/new", |_, _| Ok(()));
            assert!(
                matches!(refused, Err(TranscriptError::RecordNotFound { .. })),
                "{name}"
            );
            if name != "t-3" {
                let open = OpenRollout::open(&RolloutBooks::default(), root, SOURCE, Some((holder, name)));
                assert!(open.is_err(), "{holder} {name}");
            }
        }
        assert_eq!([&owner, &source].map(|path| std::fs::read(path).unwrap()), before);
        let old = [
            vec![meta(0, OWNER, &json!({"history_mode": "whole"}))],
            prompt(1, "t-1", "one"),
        ]
        .concat();
        write(root, OWNER, &old);
        let refused = branch_at(root, OWNER, OWNER, "o2", "/new", |_, _| Ok(()));
        assert!(matches!(refused, Err(TranscriptError::Io { .. })));
    }
}
